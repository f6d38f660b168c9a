"""The type of a batch, and information about a batch beyond its arrays."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from .notebook import table

Batch = dict[str, Any]
"""A batch: names and arrays (or tensors), one row per record; lists where values have no common shape.

A batch of arrays is a plain `dict`, because JAX and others treat subclasses of `dict` as one opaque value.
"""

MAX_ORDINALS = 8
"""Maximum number of ordinals that the repr of a `BatchInfo` lists."""


def named(batch: Any, as_torch: bool) -> Any:
    """Returns a batch of tensors as a dictionary that names its entries if another one is requested."""
    if not as_torch or type(batch) is not dict:
        return batch
    from .torch_batch import TensorBatch

    return TensorBatch(batch)


class BatchInfo(NamedTuple):
    """Information about a batch beyond its arrays."""

    epoch: int
    """Epoch, from 0."""
    step: int
    """Global step in the epoch, from 0."""
    micro_batch: int
    """Index among the micro-batches of the step, over all ranks, from 0."""
    rows: int
    """Number of rows, including rows without a record."""
    filler_rows: int
    """Number of rows without a record, at the end of the batch."""
    tokens: int
    """Sum of the lengths of its records."""
    max_length: int
    """Length of the longest record or, when packed, piece of a document."""
    records: list[int]
    """Ordinals of its records in their split: one per row or, when packed, one per piece of a document."""
    blank: list[int]
    """Ordinals of the records whose image could not be decoded (`undecodable="blank"`)."""
    trained: int | None = None
    """Number of tokens that the loss is computed on; `None` if the batch has no labels."""

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value}" for name, value in self._asdict().items() if isinstance(value, int))
        return f"BatchInfo({numbers}, records={_short(self.records)}, blank={_short(self.blank)})"

    def _repr_html_(self) -> str:
        """Returns the information as an HTML table, for notebooks."""
        rows = {name: _short(value) if isinstance(value, list) else value for name, value in self._asdict().items()}
        return table("Batch", rows)


def _short(ordinals: list[int]) -> str:
    if len(ordinals) <= MAX_ORDINALS:
        return str(ordinals)
    return f"[{', '.join(map(str, ordinals[:MAX_ORDINALS]))}, … {len(ordinals):,} in all]"


class _CurrentBatch(threading.local):
    info: BatchInfo | None = None


current = _CurrentBatch()
"""Per thread: information about the batch that the thread transforms."""


def batch_info() -> BatchInfo | None:
    """Returns information about the batch being made in a `transform` or `batch_transform` of a `Loader`; else `None`.

    Seed random choices with it, for example with `(seed, info.epoch, info.step, info.micro_batch)`. They are then the
    same in every run, with any number of threads, and after a resume.
    """
    return current.info
