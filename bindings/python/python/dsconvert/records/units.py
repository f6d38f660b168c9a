"""Converts units: the items of each become records, rejects and filtered items, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from ..errors import UsageError
from .function import Function, Reject, StopRun
from .inputs import Items
from .types import Schema
from .values import InvalidRecord, values


@dataclass
class Counts:
    """Outcomes of items. `found` is the sum of the others."""

    found: int = 0
    converted: int = 0
    filtered: int = 0
    rejected: int = 0
    records: int = 0
    discarded_units: int = 0
    """Units that another process had finished with other records, which stay."""

    def add(self, other: Counts) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass
class Work:
    """What every process needs to convert units."""

    out: str
    options: str
    schema: Schema
    function: Function
    items: Items
    unit_items: int
    batch_size: int | None
    split: str
    counts: Counts = field(default_factory=Counts)
    binding: str | None = None
    """What ties a companion to its base, as JSON."""

    def join(self) -> _native.DatasetWriter:
        """Joins the output, which a process has opened."""
        return _native.DatasetWriter(self.out, self.schema.json(), self.options, True)

    def range_of(self, unit: int) -> range:
        begin = unit * self.unit_items
        return range(begin, min(begin + self.unit_items, len(self.items)))

    def convert(self, writer: _native.DatasetWriter, number: int, progress: Callable[[int], None]) -> Counts:
        """Converts a unit.

        Raises:
            StopRun: With the unit and the items, if no item is to blame.
        """
        counts, batch = Counts(), self.range_of(number)
        try:
            unit = writer.unit(number)
            for batch in self._batches(self.range_of(number)):
                items = [self.items[at] for at in batch]
                results = self._results(items)
                for at, item, result in zip(batch, items, results, strict=True):
                    self._write(unit, at, item, result, counts)
                progress(len(batch))
            batch = self.range_of(number)
            counts.discarded_units += not unit.finish()
        except (StopRun, OSError, MemoryError) as error:
            which = f"item {batch[0]}" if len(batch) == 1 else f"items {batch[0]} to {batch[-1]}"
            raise StopRun(f"unit {number}, {which}: {error or type(error).__name__}") from error
        return counts

    def _batches(self, numbers: range) -> Iterator[range]:
        """Yields the numbers of the items of each call of the function. A batch never crosses a unit."""
        size = self.batch_size or 1
        for begin in range(numbers.start, numbers.stop, size):
            yield range(begin, min(begin + size, numbers.stop))

    def _results(self, items: list[Any]) -> Iterator[Any]:
        if self.batch_size is None:
            return map(self.function.one, items)
        return self.function.batch(items)

    def _write(self, unit: _native.UnitWriter, at: int, item: Any, result: Any, counts: Counts) -> None:
        """Gives an item its outcome."""
        counts.found += 1
        key = self.items.key(at, item)
        if result is None or isinstance(result, list) and not result:
            unit.filter(key, "the function returned no record", self.split)
            counts.filtered += 1
            return
        if isinstance(result, Reject):
            return self._reject(unit, key, "function-rejected", result.reason, counts)
        if isinstance(result, Exception):
            return self._reject(unit, key, "function-failed", f"{type(result).__name__}: {result}", counts)
        several = isinstance(result, list)
        try:
            # All values first: an item has one outcome.
            made = [self._values(record, f"{key}#{at}" if several else key) for at, record in enumerate(result if several else [result])]
        except InvalidRecord as error:
            return self._reject(unit, key, error.code, str(error), counts)
        for place, record in enumerate(made):
            try:
                unit.push(record, self.split, place > 0)
            except UsageError as error:
                if place > 0:
                    # The first records of the item are written already.
                    raise StopRun(f"record {place} of the item: {error.message}") from error
                return self._reject(unit, key, "invalid-value", error.message, counts)
            counts.records += 1
        counts.converted += 1

    def _values(self, record: Any, key: str) -> list[Any]:
        if not isinstance(record, Mapping):
            raise InvalidRecord("wrong-type", f"a record is a dictionary, not {type(record).__name__}")
        return values(self.schema, record, key)

    def _reject(self, unit: _native.UnitWriter, key: str, code: str, message: str, counts: Counts) -> None:
        # Messages with addresses of objects or of memory would differ between runs.
        unit.reject(key, code, _without_addresses(message), self.split)
        counts.rejected += 1


def _without_addresses(message: str) -> str:
    import re

    return re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", message)[:2000]
