"""Loads batches in this process as a `DataLoader` worker would, and times `__getitem__` and `collate_fn`."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from ..loader import Loader

Collate = Callable[[list[Any]], Any]


class BatchLoad(NamedTuple):
    """One batch and the seconds that it took to load."""

    batch: Any
    item_seconds: list[float]
    """Time of each `__getitem__`. With `__getitems__`, an equal share of the time of the batch."""
    fetch_seconds: float
    collate_seconds: float
    rows: int | None = None
    """Number of its items, if that is known without its contents."""

    @property
    def seconds(self) -> float:
        """Time of the whole batch."""
        return self.fetch_seconds + self.collate_seconds


def is_data_loader(source: object) -> bool:
    """Returns whether `source` is a `torch.utils.data.DataLoader`."""
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and isinstance(source, torch_data.DataLoader)


def is_iterable_dataset(dataset: object) -> bool:
    """Returns whether `dataset` has no `__getitem__`, or is a torch `IterableDataset`, which only seems to have one."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return True
    return not hasattr(dataset, "__getitem__")


@contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Runs torch with one thread, as in a worker process, and restores its random number state."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def loads_of(loader: Any) -> Iterator[BatchLoad]:
    """Loads batches of a `DataLoader` by calling its sampler, dataset and `collate_fn` directly."""
    if is_iterable_dataset(loader.dataset):
        return _loads_of_iterable(loader.dataset, loader.batch_size, loader.drop_last, loader.collate_fn)
    if loader.batch_sampler is None:  # batch_size=None: the sampler returns indices of the dataset
        return _loads_one_by_one(loader.dataset, loader.sampler, loader.collate_fn)
    return loads_of_map(loader.dataset, loader.batch_sampler, loader.collate_fn)


def loads_of_map(
    dataset: Any, batches: Iterable[Sequence[Any]], collate: Collate | None
) -> Iterator[BatchLoad]:
    """Loads batches of a map-style dataset."""
    fetch_many = getattr(dataset, "__getitems__", None)
    for indices in batches:
        items, item_seconds = [], []
        start = perf_counter()
        if fetch_many is not None:
            items = _call(fetch_many, list(indices), f"{type(dataset).__name__}.__getitems__")
            fetch_seconds = perf_counter() - start
            item_seconds = [fetch_seconds / len(items)] * len(items) if items else []
        else:
            before = start
            for index in indices:
                items.append(item_of(dataset, index))
                now = perf_counter()
                item_seconds.append(now - before)
                before = now
            fetch_seconds = before - start
        yield _collated(items, item_seconds, fetch_seconds, collate)._replace(rows=len(items))


def item_of(dataset: Any, index: Any) -> Any:
    """Returns `dataset[index]`. An exception gets a note that names the index."""
    try:
        return dataset[index]
    except Exception as error:
        error.add_note(f"raised by {type(dataset).__name__}.__getitem__({index!r})")
        raise


def _loads_one_by_one(dataset: Any, indices: Iterable[Any], collate: Collate) -> Iterator[BatchLoad]:
    for index in indices:
        start = perf_counter()
        item = item_of(dataset, index)
        seconds = perf_counter() - start
        yield _collated(item, [seconds], seconds, collate)


def _loads_of_iterable(
    dataset: Iterable[Any], batch_size: int | None, drop_last: bool, collate: Collate
) -> Iterator[BatchLoad]:
    items = timed(iter(dataset), f"the iterator of {type(dataset).__name__}")
    if batch_size is None:
        for item, seconds in items:
            yield _collated(item, [seconds], seconds, collate)
        return
    while True:
        chunk = list(islice(items, batch_size))
        if not chunk or (drop_last and len(chunk) < batch_size):
            return
        item_seconds = [seconds for _, seconds in chunk]
        yield _collated([item for item, _ in chunk], item_seconds, sum(item_seconds), collate)._replace(rows=len(chunk))


def _collated(
    items: Any, item_seconds: list[float], fetch_seconds: float, collate: Collate | None
) -> BatchLoad:
    if collate is None:
        return BatchLoad(items, item_seconds, fetch_seconds, 0.0)
    start = perf_counter()
    batch = _call(collate, items, "collate_fn")
    return BatchLoad(batch, item_seconds, fetch_seconds, perf_counter() - start)


def _call(function: Callable[[Any], Any], argument: Any, name: str) -> Any:
    """Calls `function`. An exception gets a note with its `name`."""
    try:
        return function(argument)
    except Exception as error:
        error.add_note(f"raised by {name}")
        raise


def timed(iterator: Iterator[Any], name: str) -> Iterator[tuple[Any, float]]:
    """Yields the values of `iterator`, with the seconds spent in each `next()`."""
    number = 0
    while True:
        start = perf_counter()
        try:
            value = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            error.add_note(f"raised by {name}, in call {number + 1} of next()")
            raise
        yield value, perf_counter() - start
        number += 1


def without_threads(loader: Loader) -> Loader:
    """Returns a copy of `loader` that makes each batch on request, so that the time of `next()` is the load time."""
    twin = copy.copy(loader)
    twin._options = {name: value for name, value in loader._options.items() if name != "prefetch"}
    twin._options["num_threads"] = 0
    return twin
