"""Counts the rows, bytes, tokens and padding in a batch or item of any loader.

Batches are nested mappings, lists and tuples whose leaves are numpy arrays, torch tensors, bytes, strings and numbers.
"""

from __future__ import annotations

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
    """Elements of the array that carries the data, padding included: tokens of a text batch, values of an image batch."""
    tokens: int | None
    """Token ids without padding, when the batch has token ids, a mask or lengths."""
    padding: int | None
    """Elements that are padding, when the batch has a mask or lengths of its rows."""


def elements_of(batch: Any) -> int:
    """Returns the number of elements of `batch`, padding included, from shapes alone."""
    main = _main_array(_entries(batch), batch)
    return 0 if main is None else _size(main)


def contents_of(batch: Any) -> BatchContents:
    """Returns the sizes of `batch`."""
    entries = _entries(batch)
    ids, mask, lengths = (_first_array(entries, names) for names in (_IDS, _MASKS, _LENGTHS))
    main = _main_array(entries, batch)
    elements = 0 if main is None else _size(main)
    tokens: int | None = None
    if mask is not None and _size(mask) == elements:
        tokens = _sum_of_mask(mask)
    if tokens is None and lengths is not None and (ids is not None or mask is not None):
        total = int(lengths.sum())
        tokens = total if 0 <= total <= elements else None
    padding = None if tokens is None else elements - tokens
    if tokens is None and ids is not None and mask is None:
        tokens = elements
    rows = _rows(batch, entries, main)
    return BatchContents(rows, sum(map(_bytes, _leaves(batch))), elements, tokens, padding)


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


def _first_array(entries: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """Returns the first of the named entries that is an array, or None."""
    return next((entries[name] for name in names if name in entries and _is_array(entries[name])), None)


def _main_array(entries: Mapping[Any, Any], batch: Any) -> Any:
    """Returns the array that carries the data: token ids, a mask, or the largest array."""
    for names in (_IDS, _MASKS):
        found = _first_array(entries, names)
        if found is not None:
            return found
    return max(filter(_is_array, _leaves(batch)), key=_size, default=None)


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


def _size(array: Any) -> int:
    size = 1
    for side in array.shape:
        size *= int(side)
    return size


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
    if _size(mask) == 0:
        return 0
    if float(mask.min()) < 0 or float(mask.max()) > 1:
        return None
    # Counts instead of adding the values: a sum of 16-bit floats is rounded, and infinite above 65,504.
    return int((mask != 0).sum())


def _rows(batch: Any, entries: Mapping[Any, Any], main: Any) -> int:
    if isinstance(batch, (list, tuple)) and batch and all(isinstance(value, Mapping) for value in batch):
        return len(batch)  # records that were not collated
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
