"""User functions that run on the threads of a `Loader`."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .batch_info import Batch, BatchInfo, current, named
from .dataset import Split
from .errors import UsageError
from .source import Record, Transform

BatchTransform = Callable[[Batch], Any]


class BatchFinisher:
    """Calls the functions of the user on a batch, on the thread that assembled it."""

    def __init__(
        self,
        split: Split | None,
        transform: Transform | None,
        batch_transform: BatchTransform | None,
        as_torch: bool,
    ) -> None:
        self._split = split
        self.max_length: int | None = None
        """Number of tokens that records of text are cut to."""
        self._transform = transform
        self._batch_transform = batch_transform
        self._as_torch = as_torch

    def __call__(self, batch: Batch, info: tuple[Any, ...]) -> Any:
        result: Any = batch
        # A transform may iterate over another loader, which makes its batches on the same thread.
        outer, current.info = current.info, BatchInfo(*info)
        try:
            if self._split is not None and self._transform is not None:
                records = self._split.__getitems__(current.info.records)
                if self.max_length is not None:
                    records = [truncated(record, self.max_length) for record in records]
                # Not `map`: `list` would take a StopIteration of the transform for the end of the records.
                result = collate([self._transform(record) for record in records], self._as_torch)
            if self._batch_transform is not None:
                result = self._batch_transform(named(result, self._as_torch))
                if result is None:
                    raise UsageError("batch_transform returned None", remedy="return the batch")
        except StopIteration as error:
            # It would silently end the epoch.
            raise RuntimeError("a transform of the Loader raised StopIteration") from error
        finally:
            current.info = outer
        return result


class WeakFinisher:
    """Calls the finisher of a loader as long as it exists.

    The native loader refers to the functions of the user only through this object. If it owned them, a function that
    refers to the loader, such as a method of its owner, would form a cycle that the garbage collector cannot see.
    """

    def __init__(self, finisher: BatchFinisher) -> None:
        self._finisher = weakref.ref(finisher)

    def __call__(self, batch: Batch, info: tuple[Any, ...]) -> Any:
        finisher = self._finisher()
        if finisher is None:  # the batch was prefetched and is dropped with the loader
            raise RuntimeError("the Loader no longer exists")
        return finisher(batch, info)


def record_finisher(
    split: Split,
    transform: Transform,
    batch_transform: BatchTransform | None,
    fields: Sequence[str] | None,
    decode: bool,
    as_torch: bool,
) -> BatchFinisher:
    """Returns a finisher that reads the records of a batch itself and calls `transform` on each."""
    decode = decode and split.kind == "images"
    records = split._stored(fields, decode)
    return BatchFinisher(records, transform, batch_transform, as_torch)


def truncated(record: Record, length: int) -> Record:
    """Returns a record of text with at most its first `length` tokens."""
    cut = dict(record)
    for name in ("input_ids", "assistant_masks"):
        if name in cut:
            cut[name] = cut[name][:length]
    if "length" in cut:
        cut["length"] = min(cut["length"], length)
    ends = cut.get("cu_seqlens")
    if ends is not None and len(ends) and ends[-1] > length:  # rows that are packed on disk
        kept = ends[ends < length]
        cut["cu_seqlens"] = np.append(kept, ends.dtype.type(length))
        if "piece_starts" in cut:
            # One per piece: the kept ends include the 0 before the first piece, but not the new last one.
            cut["piece_starts"] = cut["piece_starts"][: len(kept)]
    return cut


def collate(records: Sequence[Any], as_torch: bool) -> Batch:
    """Collates records: values of the same shape and type become arrays, other values lists."""
    for record in records:
        if not isinstance(record, Mapping):
            raise UsageError(
                f"transform returned {type(record).__name__}, not a dictionary",
                remedy="return a dictionary of names and values, which become the entries of the batch",
            )
        if record.keys() != records[0].keys():
            raise UsageError(
                f"transform returned the names {', '.join(map(str, record))} for one record and "
                f"{', '.join(map(str, records[0]))} for another",
                remedy="return the same names for every record",
            )
    names = records[0].keys() if records else ()
    return {name: _column([record[name] for record in records], as_torch) for name in names}


def _column(values: list[Any], as_torch: bool) -> Any:
    first = values[0]
    if "torch" in sys.modules and isinstance(first, sys.modules["torch"].Tensor):
        is_same = all(isinstance(v, type(first)) and v.shape == first.shape and v.dtype == first.dtype for v in values)
        return sys.modules["torch"].stack(values) if is_same else values
    if isinstance(first, np.ndarray):
        if not all(isinstance(v, np.ndarray) and v.shape == first.shape and v.dtype == first.dtype for v in values):
            return values
        return _array(np.stack(values), values, as_torch)
    if all(type(v) is type(first) for v in values) and isinstance(first, (bool, int, float, np.generic)):
        dtype = _integer_type(values) if type(first) is int else None
        # `numpy.asarray` would make floats of large integers of both kinds.
        return values if dtype is object else _array(np.asarray(values, dtype), values, as_torch)
    return values


def _integer_type(values: list[int]) -> type:
    """Returns the type of an array of `values`, which is `object` if no type of integers has all of them."""
    low, high = min(values), max(values)
    for dtype in (np.int64, np.uint64):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return dtype
    return object


def _array(array: np.ndarray[Any, Any], values: list[Any], as_torch: bool) -> Any:
    """Returns the array or, if `as_torch`, a tensor of it, or `values` if torch has no such type."""
    if not as_torch:
        return array
    import torch

    try:
        return torch.from_numpy(array)
    except TypeError:  # text, dates
        return values
