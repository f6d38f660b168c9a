"""Counts the contents of the batches of a loader, with the exact numbers that a `Loader` reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .batch_contents import BatchContents, contents_of, has_ids
from ..loader import Loader


def counter_of(loader: Any) -> Callable[[Any], BatchContents]:
    """Returns a function that returns the sizes of the batch that `loader` has just returned."""
    if isinstance(loader, Loader):
        return lambda batch: _contents_of_last(loader, batch)
    return contents_of


def _contents_of_last(loader: Loader, batch: Any) -> BatchContents:
    contents, last = contents_of(batch), loader.last
    if last is None:
        return contents
    contents = contents._replace(rows=last.rows - last.filler_rows)
    # Packed rows have no mask. A transform may have returned fewer elements than the records have.
    is_known = contents.padding is None and loader.split.kind == "text" and last.tokens <= contents.elements
    if is_known and has_ids(batch):
        return contents._replace(tokens=last.tokens, padding=contents.elements - last.tokens)
    return contents
