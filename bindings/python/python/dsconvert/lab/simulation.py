"""`dsconvert simulate` as a function."""

from __future__ import annotations

import json
import operator
import os
import tempfile
from collections.abc import Iterable
from typing import Any, Literal

from .._native import simulate as _simulate
from ..errors import UsageError

Distribution = Literal["constant", "normal", "lognormal", "exponential", "gamma"]
"""Shapes of random times."""
Trace = str | os.PathLike[str] | Iterable[float]
"""Load times of batches: a file that `dsconvert simulate` reads, or milliseconds."""

MIN_LOAD_MS = 1e-6
"""The shortest load time that the simulator accepts, a nanosecond."""
MAX_LOAD_MS = 3_600_000
"""The longest load time that the simulator accepts, an hour."""
FLAGS = ("step_core", "stagger")
"""Options that may be `True`: those whose value is optional on the command line."""
MAX_LOADS = 10_000_000
"""Maximum number of load times that the simulator accepts."""


def simulate(
    *,
    load_ms: float | None = None,
    load_distribution: Distribution | None = None,
    load_cv: float | None = None,
    load_trace: Trace | None = None,
    slow_share: float | None = None,
    slow_factor: float | None = None,
    slow_length: float | None = None,
    workers: int | None = None,
    prefetch: int | None = None,
    order: Literal["pytorch", "completed", "pool"] | None = None,
    queue: int | None = None,
    startup_ms: float | None = None,
    stagger: bool | float | None = None,
    cores: int | None = None,
    step_core: bool = False,
    step_ms: float,
    step_distribution: Distribution | None = None,
    step_cv: float | None = None,
    transfer_ms: float | None = None,
    seconds: float | None = None,
    batches: int | None = None,
    tick_ms: float | None = None,
    seed: int | None = None,
    sweep: str | None = None,
    svg: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """Simulates data loader workers, their queue and the model, and returns what `dsconvert simulate --json` prints.

    The arguments are the options of the command, which `docs/reference/simulate.md` explains. `load_trace` may also be
    a sequence of milliseconds, and `stagger=True` is `--stagger` without a value.
    """
    options = {name: value for name, value in locals().items() if value is not None and value is not False}
    trace = options.pop("load_trace", None)
    if trace is None or isinstance(trace, (str, os.PathLike)):
        if trace is not None:
            options["load_trace"] = os.fspath(trace)
        return _run(options)
    times = _load_times(trace)
    with tempfile.NamedTemporaryFile("w", prefix="dsconvert-", suffix=".txt") as file:
        file.writelines(f"{ms!r}\n" for ms in times)
        file.flush()
        return _run({**options, "load_trace": file.name})


def _load_times(trace: Iterable[float]) -> list[float]:
    """Returns the load times as numbers. Checked here, because an error of the command would name a temporary file."""
    try:
        values = iter(trace)
    except TypeError:
        raise UsageError(f"load_trace is {type(trace).__name__}, not a file or a sequence of milliseconds") from None
    times = [_number(f"load_trace[{i}]", ms) for i, ms in enumerate(values)]
    if not times:
        raise UsageError("load_trace has no load time")
    for i, ms in enumerate(times):
        if not MIN_LOAD_MS <= ms <= MAX_LOAD_MS:
            raise UsageError(f"load_trace[{i}] is {ms}: it must be from {MIN_LOAD_MS:.6f} to {MAX_LOAD_MS} milliseconds")
    if len(times) > MAX_LOADS:
        raise UsageError(f"load_trace has more than {MAX_LOADS} load times")
    return times


def _run(options: dict[str, Any]) -> dict[str, Any]:
    arguments = []
    for name, value in options.items():
        if value is True and name not in FLAGS:
            raise UsageError(f"{name}: {value!r} is not a number")
        flag = "--" + name.replace("_", "-")
        arguments.append(flag if value is True else f"{flag}={_text(name, value)}")
    result: dict[str, Any] = json.loads(_simulate(arguments))
    return result


def _text(name: str, value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    try:
        return str(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return repr(_number(name, value))


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"{name}: {value!r} is not a number") from None
