"""Types of the fields of records, as text that manifests have, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

DTYPES = {
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
}
"""Types of the numbers of arrays, with their sizes in bytes."""

_SIZES = {"bool": 1, "int32": 4, "int64": 8, "uint32": 4, "uint64": 8, "float32": 4, "float64": 8}
_NAMES = {
    "str": "string",
    "bytes": "binary",
    "int": "int64",
    "float": "float64",
    "ids": "ids<u32>",
    "list[str]": "list<string>",
    "list[image]": "list<image>",
}
_PLAIN = {"string", "binary", "json", "image", "ids<u16>", "ids<u32>", "list<string>", "list<image>", *_SIZES}

KEY = "key"
NULLABLE = "?"


def array(dtype: str, shape: Sequence[int | None] = (), *, nullable: bool = False) -> str:
    """Returns the type of arrays of `dtype`, with the size of each axis, or `None` where it differs between records.

    Args:
        dtype: `uint8` to `uint64`, `int8` to `int64`, `float16`, `bfloat16`, `float32` or `float64`, or a dtype of numpy
            or torch.
        shape: Size of each axis; `None` for an open one. Without any, the array is a number.
        nullable: Whether a record may lack the array.
    """
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name not in DTYPES:
        raise UsageError(f"an array cannot hold the type {name!r}", remedy=f"its types are {', '.join(DTYPES)}")
    for size in shape:
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise UsageError(f"an axis of an array cannot have the size {size!r}", remedy="it is at least 1, or None")
    axes = ",".join("?" if size is None else str(size) for size in shape)
    return f"array<{name}>[{axes}]{'?' * nullable}"


@dataclass(frozen=True)
class Field:
    """One field of the records."""

    name: str
    type: str
    nullable: bool

    def array_type(self) -> tuple[str, list[int | None]] | None:
        """Returns the dtype and the axes if this is a field of arrays."""
        if not self.type.startswith("array<"):
            return None
        dtype, _, axes = self.type.removeprefix("array<").removesuffix("]").partition(">[")
        return dtype, [None if axis == "?" else int(axis) for axis in axes.split(",") if axis]

    def fixed_bytes(self) -> int | None:
        """Returns the bytes of each value if all have the same size."""
        of = self.array_type()
        if of is None:
            return _SIZES.get(self.type)
        size = DTYPES[of[0]]
        for axis in of[1]:
            if axis is None:
                return None
            size *= axis
        return size


class Schema:
    """The fields of records: a mapping from names to types. A type that ends in `?` may be missing."""

    def __init__(self, fields: Mapping[str, str], index: Sequence[str] = ()) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise UsageError("a schema is a dictionary of names and types", remedy='such as {"score": "float32"}')
        self.fields = [_field(name, ty) for name, ty in fields.items() if name != KEY]
        if KEY in fields and _field(KEY, fields[KEY]) != Field(KEY, "string", False):
            raise UsageError("the field 'key' is a text that is never missing", remedy='leave it out, or write "str"')
        self.index = list(index)

    def json(self) -> str:
        """Returns the schema for `_native.DatasetWriter`."""
        fields = [{"name": field.name, "type": field.type, "nullable": field.nullable} for field in self.fields]
        return json.dumps({"fields": fields, "index_columns": self.index})

    def described(self) -> dict[str, Any]:
        """Returns what is compared with the schema of an earlier attempt."""
        fields = {field.name: field.type + NULLABLE * field.nullable for field in self.fields}
        return {"fields": fields, "index": self.index}

    def unit_items(self) -> int:
        """Returns how many items a unit has by default: 64 MiB of values if their sizes are fixed, within limits."""
        sizes = [field.fixed_bytes() for field in self.fields]
        if any(size is None for size in sizes):
            return 1000
        bytes_of_item = 16 + sum(size or 0 for size in sizes)
        return max(100, min((64 << 20) // bytes_of_item, 100_000))


def _field(name: str, ty: str) -> Field:
    if not isinstance(name, str) or not name:
        raise UsageError(f"a field cannot be called {name!r}")
    if not isinstance(ty, str):
        raise UsageError(
            f"the type of the field {name!r} is {ty!r}, not text", remedy='write it like "float32", or use dsconvert.array'
        )
    nullable = ty.endswith(NULLABLE)
    plain = ty.removesuffix(NULLABLE) if nullable else ty
    plain = _NAMES.get(plain, plain)
    if plain not in _PLAIN and not plain.startswith("array<"):
        known = ", ".join(sorted({*_PLAIN, *_NAMES}))
        raise UsageError(f"the field {name!r} has the unknown type {ty!r}", remedy=f"types are {known}, and dsconvert.array")
    return Field(name, plain, nullable)
