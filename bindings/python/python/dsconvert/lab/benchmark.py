"""Measures how fast a dataset or a loader is."""

from __future__ import annotations

import copy
import os
import random
import stat
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, Literal, NamedTuple, TextIO

from .._native import check_trace_file
from .batch_contents import BatchContents, contents_of, contents_of_items
from .batch_loads import (
    BatchLoad,
    Collate,
    as_in_a_worker,
    is_data_loader,
    is_iterable_dataset,
    item_of,
    loads_of,
    loads_of_map,
    timed,
    without_threads,
)
from .bench_report import BenchReport, LoadBreakdown, Percentiles
from .cache import CacheDataLoader
from ..counts import counted
from ..dataset import Dataset, Split
from ..dataset import open as open_dataset
from ..errors import UsageError
from ..loader import Loader
from .loader_contents import counter_of

Stream = Callable[[], Iterator[tuple[Any, float]]]
"""Starts an epoch, and yields each value with the seconds that it took."""


def bench(
    source: Any,
    *,
    seconds: float = 5.0,
    items: int | None = None,
    warmup: int = 2,
    repeat: int = 3,
    batch_size: int | None = None,
    collate_fn: Collate | None = None,
    shuffle: bool | None = None,
    seed: int | None = None,
    unit: Literal["auto", "item", "batch"] = "auto",
    trace: str | os.PathLike[str] | None = None,
) -> BenchReport:
    """Measures how fast `source` delivers: a map-style or iterable dataset, a `DataLoader`, a `Split`, `Loader` or path
    of a dsconvert dataset, or any other iterable of items or batches.

    Each of `repeat` runs takes `seconds`, or ends after `items` items or with the data. The first `warmup` batches (or
    items) of a run do not count. A `DataLoader` is then measured without its workers: its sampler is iterated again,
    and its dataset and `collate_fn` are called in this process for another `seconds`. This gives the load time of a
    batch.

    `batch_size`, `collate_fn`, `shuffle` (default: `True`) and `seed` (default: 0) order a map-style dataset and form its
    batches. `unit` sets whether a `DataLoader` or another iterable returns items or batches; with `auto`, a `DataLoader`
    and an iterable with a `batch_size` or `batch_sampler` return batches. An option that does not apply to the source is
    refused. `trace` is a file for the load times, which `dsconvert simulate --load-trace` reads.
    """
    _check(seconds, items, warmup, repeat, batch_size)
    limits = _Limits(seconds, items, warmup)
    subject = _subject(source, batch_size, collate_fn, shuffle, seed, unit)
    if trace is not None and subject.loads is None and not subject.yields_batches:
        raise UsageError(
            "trace needs batches, but the source returns single items",
            remedy="pass batch_size= for a map-style dataset, or a loader",
        )
    if trace is not None:
        check_trace_file(trace)
    if hasattr(source, "__next__"):  # an iterator can be read only once
        repeat = 1
    with nullcontext() if trace is None else _new_file(trace) as file:
        runs = [_run(subject, limits) for _ in range(repeat)]
        in_process = None if subject.loads is None else _run_in_process(subject.loads, limits)
        if file is not None:
            _write_trace(file, in_process.load_seconds if in_process else [s for run in runs for s in run.times])
    return _report(subject, runs, in_process)


class _Limits(NamedTuple):
    seconds: float
    items: int | None
    warmup: int


class _Subject(NamedTuple):
    """What is measured, and how."""

    name: str
    stream: Stream
    yields_batches: bool
    loads_ahead: bool
    """Whether loading continues between two calls of `next()`. The clock then does not stop between them."""
    loads: Callable[[], Iterator[BatchLoad]] | None
    """Loads batches in this process."""
    is_split: bool = True
    """Whether the time of `loads` is split into `__getitem__` and `collate_fn`."""
    contents: Callable[[Any], BatchContents] = contents_of
    """Returns the sizes of the value that `stream` has just yielded."""


@dataclass
class _Run:
    """Results of one repeat."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    items: int = 0
    bytes: int = 0
    tokens: int | None = None
    elements: int = 0
    padding: int | None = None
    ended_early: bool = False


@dataclass
class _InProcess:
    """Load times of batches that this process loads itself."""

    load_seconds: list[float] = field(default_factory=list)
    item_seconds: list[float] = field(default_factory=list)
    fetch_seconds: float = 0.0
    collate_seconds: float = 0.0
    cpu_seconds: float = 0.0


def _check(seconds: float, items: int | None, warmup: int, repeat: int, batch_size: int | None) -> None:
    if not 0 < seconds <= 86_400:
        raise UsageError(f"seconds is {seconds}: it must be above 0 and at most 86400")
    for name, number, minimum in (
        ("items", items, 1), ("warmup", warmup, 0), ("repeat", repeat, 1), ("batch_size", batch_size, 1),
    ):
        if number is not None and number < minimum:
            raise UsageError(f"{name} is {number}: it must be at least {minimum}")


def _subject(
    source: Any,
    batch_size: int | None,
    collate_fn: Collate | None,
    shuffle: bool | None,
    seed: int | None,
    unit: Literal["auto", "item", "batch"],
) -> _Subject:
    if unit not in ("auto", "item", "batch"):
        raise UsageError(f"unit is {unit!r}: it must be auto, item or batch")
    name = type(source).__name__
    if isinstance(source, (str, os.PathLike)):
        source = open_dataset(source)
    if isinstance(source, Dataset):
        source = source.default
    is_loader = is_data_loader(source) or isinstance(source, (Loader, CacheDataLoader))
    if is_loader or is_iterable_dataset(source):
        for option, value in (
            ("batch_size", batch_size), ("collate_fn", collate_fn), ("shuffle", shuffle), ("seed", seed),
        ):
            if value is not None:
                raise UsageError(f"{option} does not apply: a {name} orders its items and forms its batches itself")
        if not hasattr(source, "__iter__"):
            raise UsageError(
                f"a {name} cannot be measured: it has neither __getitem__ nor __iter__",
                remedy="pass a dataset, a DataLoader or another iterable",
            )
    if is_data_loader(source):
        batch = "" if source.batch_size is None else f", batch size {source.batch_size}"
        workers = counted(source.num_workers, "worker")
        return _Subject(
            f"{name} over {type(source.dataset).__name__}, {workers}{batch}",
            _iterated(source, "the loader"),
            # Without automatic batching, the dataset may return batches or items. Batches are assumed.
            yields_batches=unit != "item",
            loads_ahead=source.num_workers > 0,
            loads=lambda: loads_of(source),
        )
    if isinstance(source, Loader):
        if unit != "auto":
            raise UsageError("unit does not apply: a Loader returns batches")
        # A copy, so that the loader stays where it is.
        measured = copy.copy(source)
        return _Subject(
            f"dsconvert.Loader over {source.split!r}",
            _iterated(measured, "the loader"),
            yields_batches=True,
            loads_ahead=True,
            loads=lambda: _loads_of_next(without_threads(source)),
            is_split=False,
            contents=counter_of(measured),
        )
    if is_loader or is_iterable_dataset(source):
        batches = is_loader or hasattr(source, "batch_size") or hasattr(source, "batch_sampler")
        return _Subject(
            name, _iterated(source, "the loader"), unit == "batch" or (unit == "auto" and batches), True, None
        )
    if unit != "auto":
        raise UsageError(
            f"unit does not apply: the values of a {name} are items",
            remedy="pass batch_size= to form batches of them, or iter(source) if they are batches",
        )
    return _map_subject(source, batch_size, collate_fn, shuffle is None or shuffle, seed or 0)


def _map_subject(
    source: Any, batch_size: int | None, collate_fn: Collate | None, shuffle: bool, seed: int
) -> _Subject:
    if not hasattr(source, "__len__"):
        raise UsageError(f"a {type(source).__name__} cannot be measured: it has no length")
    if collate_fn is not None and batch_size is None:
        raise UsageError("collate_fn needs batch_size")
    name = repr(source) if isinstance(source, Split) else type(source).__name__

    def order() -> list[int]:
        ordinals = list(range(len(source)))
        if shuffle:
            random.Random(seed).shuffle(ordinals)
        return ordinals

    def one_by_one() -> Iterator[tuple[Any, float]]:
        for index in order():
            start = perf_counter()
            item = item_of(source, index)
            yield item, perf_counter() - start

    if batch_size is None:
        return _Subject(name, one_by_one, yields_batches=False, loads_ahead=False, loads=None)
    size = batch_size

    def loads() -> Iterator[BatchLoad]:
        ordinals = order()
        return loads_of_map(
            source, (ordinals[i : i + size] for i in range(0, len(ordinals), size)), collate_fn
        )

    def contents(load: BatchLoad) -> BatchContents:
        if collate_fn is None:
            return contents_of_items(load.batch)
        return contents_of(load.batch)._replace(rows=len(load.item_seconds))

    return _Subject(
        f"{name}, batch size {size}",
        lambda: ((load, load.seconds) for load in loads()),
        yields_batches=True,
        loads_ahead=False,
        loads=loads,
        contents=contents,
    )


def _iterated(source: Iterable[Any], name: str) -> Stream:
    return lambda: timed(iter(source), name)


def _loads_of_next(loader: Loader) -> Iterator[BatchLoad]:
    contents = counter_of(loader)
    for batch, seconds in timed(iter(loader), "the loader"):
        yield BatchLoad(batch, [], seconds, 0.0, contents(batch).rows)


def _run(subject: _Subject, limits: _Limits) -> _Run:
    run = _Run()
    start = perf_counter()
    for number, (value, seconds) in enumerate(subject.stream()):
        now = perf_counter()
        if number < limits.warmup:
            start = now
            continue
        run.seconds = now - start if subject.loads_ahead else run.seconds + seconds
        run.times.append(seconds)
        contents = subject.contents(value)
        run.items += contents.rows if subject.yields_batches else 1
        run.bytes += contents.bytes
        if contents.tokens is not None:
            run.tokens = (run.tokens or 0) + contents.tokens
        if contents.padding is not None:
            run.padding = (run.padding or 0) + contents.padding
            run.elements += contents.elements
        if run.seconds >= limits.seconds or (limits.items is not None and run.items >= limits.items):
            return run
    run.ended_early = True
    if not run.times:
        unit = "batches" if subject.yields_batches else "items"
        raise UsageError(
            f"nothing to measure: {subject.name} ended within the warm-up of {limits.warmup} {unit}",
            remedy="use a longer source, or a smaller warmup",
        )
    return run


def _run_in_process(
    loads: Callable[[], Iterator[BatchLoad]], limits: _Limits, batches: int | None = None
) -> _InProcess:
    in_process = _InProcess()
    rows, seconds, cpu = 0, 0.0, process_time()
    with as_in_a_worker():
        for number, load in enumerate(loads()):
            used, cpu = process_time() - cpu, process_time()
            if number < limits.warmup:
                continue
            in_process.load_seconds.append(load.seconds)
            seconds += load.seconds
            in_process.item_seconds += load.item_seconds
            in_process.fetch_seconds += load.fetch_seconds
            in_process.collate_seconds += load.collate_seconds
            in_process.cpu_seconds += used
            rows += load.rows or contents_of(load.batch).rows
            enough = seconds >= limits.seconds or len(in_process.load_seconds) == batches
            if enough or (limits.items is not None and rows >= limits.items):
                break
            cpu = process_time()
    return in_process


def load_times(loader: Any, batches: int, seconds: float) -> tuple[list[float], float]:
    """Returns the seconds to load each of up to `batches` batches of a `DataLoader` or `Loader` in this process, and
    the share of CPU time."""
    loads = (lambda: _loads_of_next(without_threads(loader))) if isinstance(loader, Loader) else lambda: loads_of(loader)
    # The first batch opens files and does not count.
    in_process = _run_in_process(loads, _Limits(seconds, None, warmup=1), batches)
    return in_process.load_seconds, in_process.cpu_seconds / max(sum(in_process.load_seconds), 1e-9)


@contextmanager
def _new_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Opens a file before the measurement, so that a wrong path fails at once. If the measurement fails, a file that
    existed before is unchanged and a new one is removed."""
    is_new = not os.path.lexists(path)
    with open(path, "a", encoding="utf-8") as file:
        try:
            yield file
        except BaseException:
            if is_new:
                os.unlink(path)
            raise


def _write_trace(file: TextIO, seconds: list[float]) -> None:
    if not seconds:
        raise UsageError("no load times for the trace: the source ended within the warm-up")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate(0)
    file.write("# milliseconds to load each batch\n")
    # The simulator rejects a time of 0, which a coarse clock may report.
    file.writelines(f"{max(1e-6, s * 1e3):.6f}\n" for s in seconds)


def _report(subject: _Subject, runs: list[_Run], in_process: _InProcess | None) -> BenchReport:
    def rate(count: Callable[[_Run], float]) -> float:
        return statistics.median(count(run) / max(run.seconds, 1e-9) for run in runs)

    per_item = [run.items / max(run.seconds, 1e-9) for run in runs]
    items_per_second = rate(lambda run: run.items)
    elements = sum(run.elements for run in runs)
    all_times = [s for run in runs for s in run.times]
    load = Percentiles.of(in_process.load_seconds) if in_process else None
    breakdown = None
    if in_process is not None and load is not None:
        total = max(sum(in_process.load_seconds), 1e-9)
        breakdown = LoadBreakdown(
            load,
            in_process.fetch_seconds / total if subject.is_split else None,
            in_process.collate_seconds / total if subject.is_split else None,
            in_process.cpu_seconds / total,
        )
    item_seconds = in_process.item_seconds if in_process else [] if subject.yields_batches else all_times
    has_tokens = any(run.tokens is not None for run in runs)
    return BenchReport(
        source=subject.name,
        items=sum(run.items for run in runs),
        batches=len(all_times) if subject.yields_batches else None,
        seconds=sum(run.seconds for run in runs),
        repeats=len(runs),
        items_per_second=items_per_second,
        batches_per_second=rate(lambda run: len(run.times)) if subject.yields_batches else None,
        bytes_per_second=rate(lambda run: run.bytes),
        tokens_per_second=rate(lambda run: run.tokens or 0) if has_tokens else None,
        spread=(max(per_item) - min(per_item)) / items_per_second if len(runs) > 1 and items_per_second else None,
        item=Percentiles.of(item_seconds),
        batch=Percentiles.of(all_times) if subject.yields_batches else None,
        padding_share=sum(run.padding or 0 for run in runs) / elements if elements else None,
        load=breakdown,
        ended_early=all(run.ended_early for run in runs),
    )
