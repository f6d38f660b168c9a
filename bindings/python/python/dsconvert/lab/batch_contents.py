"""Counts the rows, bytes, tokens and padding in a batch or item of any loader.

Batches are nested mappings, lists and tuples whose leaves are numpy arrays, torch tensors, bytes, strings and numbers.
A column of a batch is an array of its rows, or a list with an array per row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_MASKS = ("attention_mask", "input_mask")
_LENGTHS = ("lengths", "length", "input_lengths", "seq_lens")
_IDS = ("input_ids", "tokens", "token_ids", "ids")


class BatchContents(NamedTuple):
    """Sizes of one batch or item."""

    rows: int
    """Items in the batch."""
    bytes: int
    """Bytes of its arrays, byte strings and strings."""
    elements: int
    """Elements of the column that carries the data, padding included: tokens of a text batch, values of an image batch."""
    tokens: int | None
    """Token ids without padding, when the batch has token ids, a mask or lengths."""
    padding: int | None
    """Elements that are padding, when the batch has a mask or lengths of its rows."""


def elements_of(batch: Any) -> int:
    """Returns the number of elements of `batch`, padding included, from shapes alone."""
    items = _items(batch)
    if items is not None:
        return sum(map(elements_of, items))
    return _size(_main_column(_entries(batch), batch))


def contents_of(batch: Any) -> BatchContents:
    """Returns the sizes of `batch`."""
    items = _items(batch)
    if items is not None:
        return contents_of_items(items)
    entries = _entries(batch)
    ids, mask = _first_column(entries, _IDS), _first_column(entries, _MASKS)
    lengths = _first_array(entries, _LENGTHS)
    main = _main_column(entries, batch)
    elements = _size(main)
    tokens: int | None = None
    if mask is not None and _size(mask) == elements:
        tokens = _sum_of_mask(mask)
    if tokens is None and lengths is not None and (ids is not None or mask is not None):
        total = int(lengths.sum())
        tokens = total if 0 <= total <= elements else None
    padding = None if tokens is None else elements - tokens
    if tokens is None and ids is not None and mask is None and not _is_packed(entries, ids):
        tokens = elements
    rows = _rows(batch, entries, main)
    return BatchContents(rows, sum(map(_bytes, _leaves(batch))), elements, tokens, padding)


def contents_of_items(items: Sequence[Any]) -> BatchContents:
    """Returns the sizes of a batch that is a list of its items."""
    each = [contents_of(item) for item in items]
    tokens = [item.tokens for item in each if item.tokens is not None]
    padding = [item.padding for item in each if item.padding is not None]
    return BatchContents(
        rows=len(each),
        bytes=sum(item.bytes for item in each),
        elements=sum(item.elements for item in each),
        tokens=sum(tokens) if tokens else None,
        padding=sum(padding) if padding and len(padding) == len(each) else None,
    )


def has_ids(batch: Any) -> bool:
    """Returns whether the elements of `batch` are token ids, or those of their mask."""
    return _first_column(_entries(batch), (*_IDS, *_MASKS)) is not None


def shallow_copy(batch: Any) -> Any:
    """Copies the containers of `batch` but not its arrays, so that a step may replace values in the copy."""
    if type(batch) is dict:
        return {name: shallow_copy(value) for name, value in batch.items()}
    if type(batch) is list:
        return [shallow_copy(value) for value in batch]
    if type(batch) is tuple:
        return tuple(shallow_copy(value) for value in batch)
    if isinstance(batch, Mapping) and hasattr(batch, "copy"):  # BatchEncoding and other mappings
        return batch.copy()
    return batch


def _items(batch: Any) -> Sequence[Any] | None:
    """Returns the items of a batch that was not collated, or None for a batch of columns."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return None
    if all(isinstance(value, Mapping) for value in batch):
        # A tuple of mappings with different names is (inputs, targets).
        is_records = isinstance(batch, list) or all(value.keys() == batch[0].keys() for value in batch)
        return batch if is_records else None
    if all(isinstance(value, (list, tuple)) and len(value) == len(batch[0]) for value in batch):
        # The values of an item, such as an image and its label, differ in kind. Those of a column do not.
        return batch if all(len(set(map(_kind, value))) > 1 for value in batch) else None
    return None


def _kind(value: Any) -> object:
    return (len(value.shape), str(value.dtype)) if _is_array(value) else type(value)


def _first_array(entries: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """Returns the first of the named entries that is an array, or None."""
    return next((entries[name] for name in names if name in entries and _is_array(entries[name])), None)


def _first_column(entries: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """Returns the first of the named entries that is a column, or None."""
    return next((entries[name] for name in names if name in entries and _is_column(entries[name])), None)


def _main_column(entries: Mapping[Any, Any], batch: Any) -> Any:
    """Returns the column that carries the data: token ids, a mask, or the largest column."""
    for names in (_IDS, _MASKS):
        found = _first_column(entries, names)
        if found is not None:
            return found
    return max(_columns(batch), key=_size, default=None)


def _columns(batch: Any) -> Iterator[Any]:
    """Yields the columns of `batch`."""
    if isinstance(batch, (Mapping, list, tuple)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            if _is_column(value):
                yield value
            else:
                yield from _columns(value)
    elif _is_array(batch):
        yield batch


def _is_column(value: Any) -> bool:
    """Returns whether `value` is an array with the rows of a batch, or a list of arrays, one per row."""
    return _is_array(value) or (isinstance(value, (list, tuple)) and bool(value) and all(map(_is_array, value)))


def _is_packed(entries: Mapping[Any, Any], ids: Any) -> bool:
    """Returns whether the rows of `ids` hold several documents each, and perhaps padding after them."""
    return _is_array(ids) and len(ids.shape) > 1 and _is_array(entries.get("cu_seqlens"))


def _entries(batch: Any) -> Mapping[Any, Any]:
    """Returns the named entries of `batch`, if it is or contains a mapping."""
    if isinstance(batch, Mapping):
        return batch
    if isinstance(batch, (list, tuple)):  # (inputs, labels)
        return next((value for value in batch if isinstance(value, Mapping)), {})
    return {}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "sum"))


def _size(column: Any) -> int:
    """Returns the number of elements of a column, or 0 if there is none."""
    if column is None:
        return 0
    if isinstance(column, (list, tuple)):
        return sum(map(_size, column))
    return math.prod(map(int, column.shape))


def _bytes(value: Any) -> int:
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value)
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass"))
    return 0


def _sum_of_mask(mask: Any) -> int | None:
    """Counts the elements of a mask that are not 0. Returns None for an additive mask."""
    if isinstance(mask, (list, tuple)):
        sums = list(map(_sum_of_mask, mask))
        return None if None in sums else sum(filter(None, sums))
    if _size(mask) == 0:
        return 0
    if float(mask.min()) < 0 or float(mask.max()) > 1:
        return None
    # Counts instead of adding the values: a sum of 16-bit floats is rounded, and infinite above 65,504.
    return int((mask != 0).sum())


def _rows(batch: Any, entries: Mapping[Any, Any], main: Any) -> int:
    if main is not None and _is_transposed(batch):
        return len(batch[0])
    if isinstance(main, (list, tuple)):
        return len(main)
    if main is not None and len(main.shape) == 1:  # concatenated rows
        ends, lengths = entries.get("cu_seqlens"), entries.get("lengths")
        if _is_array(ends):
            return max(0, _size(ends) - 1)
        if _is_array(lengths):
            return _size(lengths)
    if main is not None and len(main.shape) > 0:
        return int(main.shape[0])
    if isinstance(batch, Mapping):
        return max((len(value) for value in batch.values() if isinstance(value, (list, tuple))), default=1)
    return len(batch) if isinstance(batch, (list, tuple)) else 1


def _is_transposed(batch: Any) -> bool:
    """Returns whether `batch` has one list per value of an item, as `tuple(zip(*items))` makes it."""
    return (
        isinstance(batch, (list, tuple))
        and bool(batch)
        and all(isinstance(value, (list, tuple)) and len(value) == len(batch[0]) for value in batch)
    )
