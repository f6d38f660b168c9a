"""`dsconvert.ray.convert`: plans a conversion, runs its units as Ray tasks, and commits."""

from __future__ import annotations

import json
import logging
import operator
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import UsageError
from .build_id import build_id
from .commands import plan_status, run, unfinished_units
from .nodes import check_nodes, default_cpus, nodes
from .package_shipping import shipped
from .progress import ConversionProgress, ConversionReport
from .requirement import import_optional
from .shared_directory import nonce
from .task_size import TaskSize
from .unit_tasks import TaskLimits, TaskTotals, UnitJob, UnitTasks, ranges

logger = logging.getLogger("dsconvert")

Kind = Literal["images", "text"]
PathLike = str | os.PathLike[str]

MANIFEST = "manifest.json"
# An argument of a command is at most 128 KiB on Linux.
UNITS_PER_CHECK = 10_000
HOW_TO_CONTINUE = "the finished units are kept: convert again with the same options and resume"
# Options of `dsconvert images` and `dsconvert text` that do not concern the plan, or that the commit needs.
NOT_FOR_A_PLAN = {
    "dry_run": "use the command without Ray",
    "sample": "use the command without Ray",
    "report": "a conversion by several processes has no run report",
    "quiet": "leave it out",
    "verbose": "pass a function as progress",
    "report_batch": "dsconvert inspect --html shows lengths and padding",
    "report_tokens": "dsconvert inspect --html shows lengths and padding",
    "threads": "set num_cpus, the number of threads of a task",
}


def convert(
    kind: Kind,
    sources: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    resume: bool | Literal["verify"] = False,
    max_rejects: int | str = "10%",
    strict: bool = False,
    num_cpus: int | None = None,
    memory: str = "1GiB",
    reserve_memory: int | None = None,
    task_seconds: float = 45.0,
    max_tasks: int | None = None,
    max_retries: int = 3,
    address: str | None = None,
    ship: PathLike | None = None,
    progress: Callable[[ConversionProgress], None] | None = None,
    **options: object,
) -> ConversionReport:
    """Converts `sources` into the dataset `out` on a Ray cluster. All nodes must see both under the same paths.

    `out` is a directory. A source may also be a URL such as `s3://bucket/photos`, for which every node needs
    credentials in its environment.

    `options` are the options of `dsconvert images` or `dsconvert text` without dashes: `resize="shorter:256"`,
    `shuffle=True`, `overwrite=True`. The bytes of the dataset depend only on them and on the sources.

    * `resume` continues an unfinished conversion; `"verify"` also compares the SHA-256 of finished shards.
    * `max_rejects` and `strict` are checked at the commit. With `strict`, check `ConversionReport.rejected`: the
      dataset is committed, as with the command.
    * `num_cpus` is the number of CPUs and threads of a task [default: those of the smallest node, at most 8]. `memory`
      is the limit of its command; `reserve_memory` is the number of bytes that Ray reserves for it.
    * A task takes about `task_seconds`. At most `max_tasks` are submitted at a time [default: two for each that can
      run]. Ray retries a task `max_retries` times, on any node.
    * `address` is passed to `ray.init`. `ship` sends the package to the nodes: `"package"` the installed one, otherwise
      the path of a wheel. Both are refused if this process is already connected.
    * `progress` is called about once a second.

    Raises `UsageError` for invalid options and for a node that cannot work, and `NotCommittedError` when units have
    failed after all retries. Ctrl-C cancels the tasks. In each case the finished units are kept, and the same call with
    `resume=True` continues.
    """
    return convert_with(
        kind,
        [*_sources(sources), *_flags(options)],
        out,
        resume=resume,
        max_rejects=str(max_rejects),
        strict=strict,
        num_cpus=num_cpus,
        memory=memory,
        reserve_memory=reserve_memory,
        task_seconds=task_seconds,
        max_tasks=max_tasks,
        max_retries=max_retries,
        address=address,
        ship=ship,
        progress=progress,
    )


def convert_with(
    kind: str,
    arguments: Sequence[str],
    out: PathLike,
    *,
    resume: bool | str,
    max_rejects: str,
    strict: bool,
    num_cpus: int | None,
    memory: str,
    reserve_memory: int | None,
    task_seconds: float,
    max_tasks: int | None,
    max_retries: int,
    address: str | None,
    ship: PathLike | None,
    progress: Callable[[ConversionProgress], None] | None,
) -> ConversionReport:
    """Like `convert`, with sources and options as arguments of the command."""
    started = time.monotonic()
    if kind not in ("images", "text"):
        raise UsageError(f"unknown kind of conversion {kind!r}; expected images or text")
    num_cpus = None if num_cpus is None else _at_least("num_cpus", num_cpus, 1)
    max_tasks = None if max_tasks is None else _at_least("max_tasks", max_tasks, 1)
    max_retries = _at_least("max_retries", max_retries, 0)
    reserve_memory = None if reserve_memory is None else _at_least("reserve_memory", reserve_memory, 0)
    resume = _resume(resume)
    task_seconds = _seconds("task_seconds", task_seconds)
    target = _directory(out)
    resumed = [] if resume is False else ["--resume=verify" if resume == "verify" else "--resume"]
    with _connected(address, ship):
        totals = TaskTotals(0, 0)
        units = 0
        if resume is not False and (target / MANIFEST).is_file():
            # Compares the options with those of the dataset, and does nothing else.
            summary = run(kind, *arguments, "--out", target, *resumed).output
        else:
            for line in run("plan", kind, *arguments, "--out", target, *resumed).messages.splitlines():
                logger.warning(line)
            status = plan_status(target)
            units = status["units"]
            cpus = num_cpus or default_cpus(nodes())
            limits = TaskLimits(cpus, max_tasks, max_retries, reserve_memory)
            try:
                totals = _convert_units(kind, target, status, limits, memory, task_seconds, progress, resume)
                verify = ["--verify"] if resume == "verify" else []
                commit = ["--max-rejects", max_rejects, *(["--strict"] if strict else []), *verify]
                summary = run("merge", target, *commit).output
            except KeyboardInterrupt as interrupt:
                interrupt.add_note(HOW_TO_CONTINUE)
                raise
    counts = json.loads((target / MANIFEST).read_bytes())
    return ConversionReport(
        out=target,
        records=sum(split["records"] for split in counts["splits"].values()),
        rejected=counts["rejected"],
        units=units or counts["plan"]["units"],
        converted=totals.converted,
        tasks=totals.tasks,
        seconds=time.monotonic() - started,
        summary=summary,
    )


def _convert_units(
    kind: str,
    out: Path,
    status: dict[str, Any],
    limits: TaskLimits,
    memory: str,
    task_seconds: float,
    progress: Callable[[ConversionProgress], None] | None,
    resume: bool | str,
) -> TaskTotals:
    """Converts the unfinished units of the plan."""
    todo = unfinished_units(status)
    verify = resume == "verify"
    if verify:
        todo = list(range(status["units"]))
    elif resume:
        _convert_damaged(out, sorted(set(range(status["units"])) - set(todo)), memory)
    if not todo:
        return TaskTotals(0, 0)
    unit_bytes = status["source_bytes"] / max(status["units"], 1)
    size = TaskSize.assumed(kind, task_seconds, unit_bytes, limits.num_cpus)
    build = build_id()
    with nonce(out) as shared:
        check_nodes(shared, build, limits.num_cpus)
        job = UnitJob(str(out), shared, build, int(limits.num_cpus), memory, verify)
        return UnitTasks(job, todo, size, limits, unit_bytes, progress).run()


def _convert_damaged(out: Path, finished: Sequence[int], memory: str) -> None:
    """Checks the file sizes of finished units, and converts damaged units again. There are usually none."""
    for start in range(0, len(finished), UNITS_PER_CHECK):
        units = finished[start : start + UNITS_PER_CHECK]
        run("run", out, "--units", ranges(units), "--memory", memory, "--quiet")


@contextmanager
def _connected(address: str | None, ship: PathLike | None) -> Iterator[None]:
    """Connects to Ray, unless this process is connected, and disconnects at the end."""
    ray = import_optional("ray")
    if ray.is_initialized():
        if ship is not None or address is not None:
            name = "address" if ship is None else "ship"
            raise UsageError(
                f"{name} does not apply: this process is already connected to Ray",
                remedy="pass the address to ray.init, and runtime_env={'py_modules': [dsconvert]} to ship the package",
            )
        yield
        return
    # Ray sends usage statistics unless they are disabled.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with shipped(ship) as runtime_env:
        ray.init(address=address, runtime_env=runtime_env or None, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def _directory(out: PathLike) -> Path:
    """Returns the absolute path of the output directory, because worker processes have other working directories."""
    if "://" in os.fspath(out):
        raise UsageError(
            f"{os.fspath(out)}: the output of a conversion with Ray must be a directory, not a URL",
            remedy="convert to object storage with dsconvert plan, run --part and merge: "
            "see docs/how-to/convert-on-many-machines.md",
        )
    return Path(out).absolute()


def _sources(sources: PathLike | Sequence[PathLike]) -> list[str]:
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    return [os.fspath(source) for source in listed]


def _flags(options: dict[str, object]) -> list[str]:
    """Formats options as arguments: `resize="shorter:256"` as `--resize=shorter:256`, lists joined with commas."""
    arguments = []
    for name, value in options.items():
        if name in NOT_FOR_A_PLAN:
            raise UsageError(f"{name} is not supported with Ray", remedy=NOT_FOR_A_PLAN[name])
        flag = "--" + name.replace("_", "-")
        if isinstance(value, (bool, np.bool_)):
            arguments += [flag] if value else []
        elif value is not None:
            arguments.append(f"{flag}={_text(value)}")
    return arguments


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


def _at_least(name: str, value: int, minimum: int) -> int:
    """Returns `value` as an `int`, because Ray accepts no integers of numpy."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} is not an integer") from None
    if number < minimum:
        raise UsageError(f"{name}: {number} is below the minimum of {minimum}")
    return number


def _seconds(name: str, value: float) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not seconds > 0:
        raise UsageError(f"{name}: {value!r} is not a positive number of seconds")
    return seconds


def _resume(value: bool | str) -> bool | str:
    if value == "verify":
        return value
    # Not compared by identity, which would take `numpy.False_` for true.
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise UsageError(f"resume: {value!r} is not False, True or \"verify\"")
