"""Fields that a function computes of the records of a dataset: a companion, in its order, one record for each of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import UsageError
from .convert import check_count, checked_part, existing, joining, run_units, with_identity
from .function import Function, Reject, StopRun
from .inputs import Items
from .types import Schema
from .units import Counts, Work
from .values import InvalidRecord, values

if TYPE_CHECKING:
    from ..dataset import Split

IMAGE = "image"
INPUT_IDS = "input_ids"


class BaseItems(Items):
    """The records of all splits of a dataset, one split after another."""

    def __init__(self, base: str, companions: Sequence[str], read: Sequence[str], binding: Mapping[str, Any]) -> None:
        from ..dataset import open as open_dataset

        dataset = open_dataset(base, add=companions)
        # Images are arrays of height × width × RGB, upright, as they are stored.
        decode = dataset.kind == "images" and IMAGE in read
        # A field that the function does not see tells the sizes of images for groups.
        self._sizes: list[Split] | None = None
        if dataset.kind == "images":
            self._sizes = [open_dataset(base, name, fields=["height", "width"], verify_checksums=False) for name in dataset.splits]
        self._parts = [
            open_dataset(base, name, add=companions, fields=["key", *read], decode=decode) for name in dataset.splits
        ]
        self.names = list(dataset.splits)
        self._starts = [0]
        for part in self._parts:
            self._starts.append(self._starts[-1] + len(part))
        self.identity = {"base": dict(binding), "read": list(read)}

    def __len__(self) -> int:
        return self._starts[-1]

    def splits(self) -> Iterator[tuple[str, range]]:
        """Yields the name and the numbers of the records of each split."""
        for name, start, end in zip(self.names, self._starts, self._starts[1:], strict=False):
            yield name, range(start, end)

    def _place(self, number: int) -> tuple[int, int]:
        part = next(part for part, end in enumerate(self._starts[1:]) if number < end)
        return part, number - self._starts[part]

    def __getitem__(self, number: int) -> Any:
        part, record = self._place(number)
        return self._parts[part][record]

    def key(self, number: int, item: Any) -> str:
        key: str = item["key"]
        return key

    def size(self, number: int) -> tuple[int, int]:
        """Returns the height and the width of an image."""
        part, record = self._place(number)
        assert self._sizes is not None
        found = self._sizes[part][record]
        return found["height"], found["width"]


@dataclass
class ComputedWork(Work):
    """Units that are runs of records of one split, and have a record for each of them."""

    units: list[tuple[str, int, int]] = field(default_factory=list)
    """Split and numbers of the records of each unit."""
    group: str | None = None
    per: tuple[str, ...] = ()
    null: bool = False
    """Whether the fields of a record are null if the function fails."""

    def range_of(self, unit: int) -> range:
        _, start, end = self.units[unit]
        return range(start, end)

    def convert(self, writer: _native.DatasetWriter, number: int, progress: Callable[[int], None]) -> Counts:
        """Computes the fields of a unit. Batches are made of records of one unit, and are written in the order of the base."""
        split, start, end = self.units[number]
        counts, unit = Counts(), writer.unit(number)
        done: dict[int, tuple[Any, Any]] = {}
        written = start
        for batch in self._groups(range(start, end)):
            try:
                items = [self.items[at] for at in batch]
                done.update((at, found) for at, *found in zip(batch, items, self._results(items), strict=True))  # type: ignore[misc]
                while written in done:
                    self._push(unit, split, *done.pop(written), counts)
                    written += 1
            except (StopRun, OSError, MemoryError) as error:
                which = f"record {batch[0]}" if len(batch) == 1 else f"records {batch[0]} to {batch[-1]}"
                raise StopRun(f"unit {number}, {which}: {error or type(error).__name__}") from error
            progress(len(batch))
        counts.discarded_units += not unit.finish()
        return counts

    def _groups(self, numbers: range) -> Iterator[Sequence[int]]:
        if self.group is None:
            yield from self._batches(numbers)
            return
        assert isinstance(self.items, BaseItems)
        of_size: dict[tuple[int, int], list[int]] = {}
        for number in numbers:
            of_size.setdefault(self.items.size(number), []).append(number)
        size = self.batch_size or 1
        for of_one in of_size.values():
            for begin in range(0, len(of_one), size):
                yield of_one[begin : begin + size]

    def _push(self, unit: _native.UnitWriter, split: str, item: Any, result: Any, counts: Counts) -> None:
        counts.found += 1
        key = item["key"]
        if result is None or isinstance(result, Exception):
            why = "the function returned no values"
            if isinstance(result, Exception):
                why = result.reason if isinstance(result, Reject) else f"{type(result).__name__}: {result}"
            if not self.null:
                raise StopRun(f"the record {key!r} has no values: {why}") from (result if isinstance(result, Exception) else None)
            unit.push([key, *(None for _ in self.schema.fields)], split)
            counts.rejected += 1
            return
        if not isinstance(result, Mapping):
            raise StopRun(f"the values of {key!r} are a dictionary, not {type(result).__name__}")
        try:
            found = values(self.schema, {**result, "key": key}, key)
        except InvalidRecord as error:
            raise StopRun(f"the values of {key!r}: {error}") from error
        for name in self.per:
            shape, tokens = getattr(result[name], "shape", None) or (len(result[name]),), len(item[INPUT_IDS])
            if shape[0] != tokens:
                raise StopRun(f"{name!r} of key {key!r} has {shape[0]} values, and the record has {tokens} tokens")
        try:
            unit.push(found, split)
        except UsageError as error:
            raise StopRun(f"the values of {key!r}: {error.message}") from error
        counts.converted += 1
        counts.records += 1


@dataclass(frozen=True)
class Computed:
    """What was done: number of records of the base, of those without values, and whether the companion is complete."""

    records: int
    missing: int
    committed: bool
    was_complete: bool


def compute(
    base: str,
    fn: Any,
    out: str,
    schema: Mapping[str, str],
    *,
    read: Sequence[str],
    bound: Mapping[str, Mapping[str, str]],
    companions: Sequence[str],
    version: str,
    batch_size: int | None,
    workers: int | str,
    group: str | None,
    missing: str,
    unit_records: int | None,
    part: tuple[int, int],
    format: str,
    resume: bool,
    overwrite: bool,
    scratch: str | None,
) -> Computed:
    """Computes the fields `schema` of the records of `base`; see `add_fields`."""
    if not isinstance(version, str) or not version:
        raise UsageError(
            f"version is {version!r}, not a text",
            remedy='name what the values depend on besides the records and the parameters of fn, such as version="sdxl-vae 1.0"',
        )
    if group not in (None, "shape"):
        raise UsageError(f'group cannot be {group!r}: expected None or "shape"')
    part = checked_part(part)
    null = missing == "null"
    types = {name: ty if not null or ty.endswith("?") else f"{ty}?" for name, ty in schema.items()}
    function, fields = Function(fn), Schema(types)
    per = tuple(name for name, of in bound.items() if "per" in of)
    read = list(dict.fromkeys([*read, *([INPUT_IDS] if per else [])]))
    if null and bound:
        raise UsageError('missing="null" does not apply to fields that follow others (per, of, flip)')
    described = [{"name": f.name, "type": f.type, "nullable": f.nullable} for f in fields.fields]
    of_fields = {"on": "key", "missing": missing, "read": read, "bound": bound, "format": format}
    binding = _native.bind_fields(base, json.dumps(of_fields), json.dumps(described), list(companions))
    items = BaseItems(base, companions, read, json.loads(binding))
    if group == "shape" and items._sizes is None:
        raise UsageError('group="shape" applies to datasets of images')
    per_unit = fields.unit_items() if unit_records is None else unit_records
    check_count("unit_records", per_unit)
    if batch_size is not None:
        check_count("batch_size", batch_size, ", or None")
    units = [
        (name, start, min(start + per_unit, numbers.stop))
        for name, numbers in items.splits()
        for start in range(numbers.start, numbers.stop, per_unit)
    ]
    identity = {
        "version": version,
        "function": function.identity(),
        "schema": fields.described(),
        "base": items.identity,
        "batch_size": batch_size,
        "group": group,
        "unit_records": per_unit,
    }
    options = {
        "units": len(units),
        "splits": items.names,
        "format": format,
        "shard_bytes": 256 << 20,
        "existing": existing(resume, overwrite, part),
        "scratch": scratch,
        "max_rejects": "0",
    }
    options = with_identity(options, identity)
    work = ComputedWork(
        out, joining(options), fields, function, items, per_unit, batch_size, items.names[0],
        binding=binding, units=units, group=group, per=per, null=null,
    )
    ran = run_units(work, options, identity, workers, part, is_shown=sys.stderr.isatty())
    return Computed(len(items), ran.counts.rejected, ran.committed, ran.was_complete)
