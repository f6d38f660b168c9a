"""`convert`: a dataset of any items, in parallel, resumable."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import NotCommittedError, UsageError
from . import processes
from .function import AFTER_EXCEPTION, Function, StopRun
from .inputs import items_of
from .types import Schema
from .units import Counts, Work

_FUNCTION_NAME = "function.json"
_SETTLE_SECONDS = 10.0
"""How long a part waits for other parts that end at the same time."""


@dataclass(frozen=True)
class ConvertSummary:
    """What a call of `convert` did."""

    out: str
    """The output."""
    committed: bool
    """Whether the dataset is complete. Otherwise, other parts have units left."""
    found: int
    """Items of the units that this call converted."""
    converted: int
    """Those that became records."""
    filtered: int
    """Those for which the function returned no record."""
    rejected: int
    """Those in `rejects.jsonl`."""
    records: int
    """Records, of which an item may have several."""
    discarded_units: int
    """Units that another process finished meanwhile with other records: those stay. Not 0 if the function is not
    deterministic."""
    seconds: float
    """Duration."""

    def __str__(self) -> str:
        state = "committed" if self.committed else "not complete: other parts have units left"
        outcomes = f"{self.converted:,} converted, {self.filtered:,} filtered, {self.rejected:,} rejected"
        discarded = f"; {self.discarded_units} units discarded, because others finished them" if self.discarded_units else ""
        return f"{self.out}: {state}; {self.found:,} items in {self.seconds:.1f} s: {outcomes}{discarded}"


def convert(
    fn: Any,
    inputs: Any,
    out: str | os.PathLike[str],
    schema: Mapping[str, str],
    *,
    version: str,
    workers: int | str = 0,
    batch_size: int | None = None,
    unit_items: int | None = None,
    part: tuple[int, int] = (1, 1),
    resume: bool = False,
    overwrite: bool = False,
    split: str = "train",
    index: Sequence[str] = (),
    format: str = "arrow",
    shard_bytes: int = 256 << 20,
    max_rejects: str | int = "10%",
    scratch: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ConvertSummary:
    """Writes a dataset of the records that `fn` makes of `inputs`.

    The dataset is the same for any number of workers and parts, if `fn` is deterministic.

    Args:
        fn: Function of an item, or of a list of items with `batch_size`. It returns a dictionary, a list of dictionaries,
            `None` (the item is filtered), or `dsconvert.Reject("reason")`. A class is made once per worker; an object whose
            attributes are JSON may have a method `start(device)`, which is called once per worker.
        inputs: Sequence, split of a dataset, `datasets.Dataset`, path of a Parquet or Arrow file, or generator, whose items
            are stored in a temporary file first.
        out: Directory, or URL of a prefix in object storage.
        schema: Names and types of the fields. A type is a text such as `"float32"` or the result of `dsconvert.array`; one
            that ends in `?` may be missing.
        version: Anything that changes the records and is seen neither in the parameters of `fn` nor in `inputs`.
        workers: Number of processes; 0: this process; `"cuda"`: one process per GPU.
        batch_size: Items per call. `None`: an item is passed alone.
        unit_items: Items per unit. A kill loses the unfinished unit of each worker. Default: 64 MiB of values if their sizes
            are fixed, at most 100,000 items; else 1,000.
        part: Part of the units that this call converts, as (number from 1, count).
        resume: Continue an interrupted run.
        overwrite: Replace the dataset.
        split: Name of the split.
        index: Names of fields of the type `uint32` or `uint64` that are columns of the record index.
        format: `arrow` or `parquet`; without arrays and lists, also `msgpack` or `protobuf`.
        shard_bytes: Bytes at which a shard is full. A shard never has records of two units.
        max_rejects: Share or number of rejects above which nothing is committed.
        scratch: Directory for temporary files.
        progress: Whether a line shows the progress. `None`: if stderr is a terminal.
    """
    started = time.monotonic()
    if not isinstance(version, str) or not version:
        raise UsageError(f"version is {version!r}, not a text", remedy='such as version="1"')
    if batch_size is not None:
        check_count("batch_size", batch_size, ", or None")
    if resume and overwrite:
        raise UsageError("resume and overwrite contradict each other")
    part = checked_part(part)
    location = os.fspath(out)
    function, fields = Function(fn), Schema(schema, index)
    items = items_of(inputs, None if scratch is None else os.fspath(scratch))
    if len(items) == 0:
        raise UsageError("inputs has no items")
    per_unit = fields.unit_items() if unit_items is None else unit_items
    check_count("unit_items", per_unit)
    identity = {
        "version": version,
        "function": function.identity(),
        "schema": fields.described(),
        "inputs": items.identity,
        "batch_size": batch_size,
        "unit_items": per_unit,
    }
    options = {
        "units": math.ceil(len(items) / per_unit),
        "splits": [split],
        "format": format,
        "shard_bytes": shard_bytes,
        "existing": existing(resume, overwrite, part),
        "scratch": None if scratch is None else os.fspath(scratch),
        "max_rejects": str(max_rejects),
    }
    options = with_identity(options, identity)
    work = Work(location, joining(options), fields, function, items, per_unit, batch_size, split)
    is_shown = sys.stderr.isatty() if progress is None else progress
    ran = run_units(work, options, identity, workers, part, is_shown=is_shown)
    summary = ConvertSummary(
        out=location, committed=ran.committed, seconds=time.monotonic() - started, **vars(ran.counts)
    )
    if is_shown and not ran.was_complete:
        print(summary, file=sys.stderr)
    return summary


@dataclass
class Ran:
    """What a run of units did."""

    counts: Counts
    committed: bool
    was_complete: bool
    """Whether the dataset was there already."""


def run_units(
    work: Work,
    options: dict[str, Any],
    identity: Mapping[str, Any],
    workers: int | str,
    part: tuple[int, int],
    *,
    is_shown: bool,
) -> Ran:
    """Opens the output with `options`, converts the unfinished units of `part`, and commits if it was the last one."""
    _compare(work.out, identity, replaced=options["existing"] == "overwrite")
    devices = _devices(workers)
    if devices:
        # Before anything is written.
        processes.pickled(work)
    source = work.function.source_digest()
    if _open(work.out, work.schema, options, source):
        return Ran(Counts(), True, True)
    shown, counts = _Progress(len(work.items), is_shown), Counts()
    with shown:
        todo = _todo(work, *part)
        if devices:
            counts = processes.run(work, todo, devices, shown.add)
        else:
            work.function.start(None)
            joined = work.join()
            try:
                for unit in todo:
                    counts.add(work.convert(joined, unit, shown.add))
            except StopRun as error:
                raise NotCommittedError(
                    str(error), remedy="finished units are kept: run the same call again with resume=True"
                ) from error
            finally:
                joined.close()
    return Ran(counts, _commit(work, {**identity, "source": source, "after_exception": AFTER_EXCEPTION}), False)


def with_identity(options: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the native writer for a run that `identity` describes."""
    fingerprint = json.dumps({"convert": identity}, sort_keys=True)
    return {**options, "fingerprint": fingerprint, "shard_records": None, "is_resumable": True}


def joining(options: Mapping[str, Any]) -> str:
    """Returns the options, as JSON, of a process that joins an output."""
    return json.dumps({**options, "existing": "resume"})


def existing(resume: bool, overwrite: bool, part: tuple[int, int]) -> str:
    """Returns what happens to what is in the output. The parts of a run join each other."""
    return "overwrite" if overwrite else "resume" if resume or part[1] > 1 else "refuse"


def check_count(name: str, count: Any, alternative: str = "") -> None:
    """Refuses what is not a number from 1."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"{name} is {count!r}: it is at least 1{alternative}")


def checked_part(part: tuple[int, int]) -> tuple[int, int]:
    try:
        number, parts = (int(value) for value in part)
    except (TypeError, ValueError):
        raise UsageError(f"part is {part!r}, not a number and a count", remedy="such as part=(1, 4)") from None
    if not 1 <= number <= parts:
        raise UsageError(f"part is {part!r}: parts are counted from 1", remedy=f"such as part=(1, {max(parts, 1)})")
    return number, parts


def _devices(workers: int | str) -> list[str | None]:
    """Returns the GPU of each worker process, or none for workers without one. No workers: this process."""
    if workers == "cuda":
        found = processes.gpus()
        if not found:
            raise UsageError('workers is "cuda", but there is no GPU', remedy="set a number of processes")
        return list(found)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise UsageError(f"workers is {workers!r}", remedy='it is a number of processes, 0 for this process, or "cuda"')
    return [None] * workers


def _compare(out: str, identity: Mapping[str, Any], *, replaced: bool) -> None:
    """Refuses what another call has written, and names what differs. The native writer refuses it, too, without values."""
    if replaced or "://" in out:
        return
    found: Any = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open(os.path.join(out, ".dsconvert", "plan.jsonl"), encoding="utf-8") as file:
            found = json.loads(json.loads(file.readline())["fingerprint"])["convert"]
    if found is None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(out, "manifest.json"), encoding="utf-8") as file:
                found = json.load(file)["options"]["convert"]
    if not isinstance(found, dict):
        return
    for name, new in identity.items():
        old = found.get(name)
        # As stored.
        new = json.loads(json.dumps(new))
        if old != new:
            raise UsageError(
                f"the records in {out} were made with another {name}: {json.dumps(old)}, not {json.dumps(new)}",
                remedy="use the same one; or choose another output, or replace it with overwrite=True",
            )


def _open(out: str, fields: Schema, options: dict[str, Any], source: str | None) -> bool:
    """Opens the output, so that processes can join it. Returns whether the dataset is committed."""
    try:
        writer = _native.DatasetWriter(out, fields.json(), json.dumps(options), False)
    except UsageError as refused:
        if options["existing"] != "resume":
            raise
        # Another part has opened it, and may be writing.
        for attempt in range(20):
            try:
                _native.DatasetWriter(out, fields.json(), json.dumps(options), True).close()
                break
            except UsageError:
                time.sleep(0.1)
                if attempt == 19:
                    raise refused from None
        _check_source(out, source)
        return False
    try:
        if writer.committed:
            return True
        _check_source(out, source)
    finally:
        writer.close()
    return False


def _check_source(out: str, source: str | None) -> None:
    """Warns if the source of the function is not that of an earlier attempt. It is stored beside the plan."""
    if source is None or "://" in out:
        return
    path = os.path.join(out, ".dsconvert", _FUNCTION_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file).get("source")
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            temporary = f"{path}.{os.getpid()}"
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"source": source}, file)
            os.replace(temporary, path)
        return
    if before != source:
        warnings.warn(
            "the source of fn has changed since this run was started; units that are finished stay as they are. "
            "Change version if the records differ",
            stacklevel=5,
        )


def _todo(work: Work, number: int, parts: int) -> list[int]:
    writer = work.join()
    try:
        return [unit for unit in writer.unfinished() if unit % parts == number - 1]
    finally:
        writer.close()


def _commit(work: Work, described: dict[str, Any]) -> bool:
    """Commits if all units are finished, and returns whether the dataset is committed."""
    fields, deadline = work.schema, time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            writer = _native.DatasetWriter(work.out, fields.json(), work.options, False)
        except UsageError:
            # Another part holds the output: it is still writing, or it commits.
            if time.monotonic() > deadline:
                return False
            try:
                joined = work.join()
            except UsageError:
                time.sleep(0.1)
                continue
            try:
                if joined.unfinished():
                    return False
            finally:
                joined.close()
            time.sleep(0.1)
            continue
        try:
            if writer.committed:
                return True
            if writer.unfinished():
                return False
            writer.commit(json.dumps({"convert": described}), [], work.binding)
            return True
        finally:
            writer.close()


class _Progress:
    """One line on stderr."""

    def __init__(self, items: int, is_shown: bool) -> None:
        self.is_shown = is_shown
        self._items, self._done = items, 0
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_shown:
            print(file=sys.stderr)

    def add(self, items: int) -> None:
        self._done += items
        now = time.monotonic()
        if self.is_shown and now - self._shown > 0.2:
            self._shown = now
            rate = self._done / max(now - self._started, 1e-9)
            print(f"\r{self._done:,} of {self._items:,} items, {rate:,.0f}/s", end="", file=sys.stderr, flush=True)

