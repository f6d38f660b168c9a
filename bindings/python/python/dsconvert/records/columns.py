"""Rows of batches: columns in a dictionary, or tables that other libraries export through the Arrow C interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import UsageError
from .types import Field, Schema
from .values import InvalidRecord

_PIECE_ROWS = 1024
_PIECE_BYTES = 16 << 20
"""Rows and bytes of a table that are objects of Python at a time."""
_SHAPED = ("data", "shape")
"""Members of the struct of an array whose shape is not in its type."""


def rows(batch: Any, schema: Schema) -> Iterator[dict[str, Any]]:
    """Returns the rows of `batch` as records.

    Raises:
        UsageError: If it is neither a table nor columns of one length.
    """
    if hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
        return _rows_of_table(_batches(batch), schema)
    if not isinstance(batch, Mapping):
        raise UsageError(
            f"a batch is a dictionary of columns or a table of Arrow, not {type(batch).__name__}",
            remedy="write the records of a list one by one, with write",
        )
    lengths = {name: _length(name, column) for name, column in batch.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"the columns differ in length: {', '.join(f'{name} {count}' for name, count in lengths.items())}")
    # Not by index, which has another meaning for a series of pandas.
    return (dict(zip(batch, row, strict=True)) for row in zip(*map(_on_cpu, batch.values()), strict=True))


def _length(name: str, column: Any) -> int:
    if isinstance(column, (str, bytes, Mapping)):
        raise UsageError(f"the column {name!r} is of type {type(column).__name__}, not a list or an array")
    try:
        return len(column)
    except TypeError:
        raise UsageError(f"the column {name!r} is of type {type(column).__name__}, which has no length") from None


def _on_cpu(column: Any) -> Any:
    """Copies a tensor from a GPU once, not row by row."""
    return column.detach().cpu() if hasattr(column, "detach") else column


def _batches(table: Any) -> Any:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError("tables of Arrow need pyarrow", remedy="install it, or write columns in a dictionary") from error
    if hasattr(table, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(table)
    return [pa.record_batch(table)]


def _rows_of_table(batches: Iterable[Any], schema: Schema) -> Iterator[dict[str, Any]]:
    fields = {field.name: field for field in schema.fields}
    for batch in batches:
        names = batch.schema.names
        # One batch may be a whole table.
        step = max(1, min(_PIECE_ROWS, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, step):
            columns = batch.slice(start, step).columns
            values = [_values(column, fields.get(name)) for name, column in zip(names, columns, strict=True)]
            for row in zip(*values, strict=True):
                yield dict(zip(names, row, strict=True))


def _values(column: Any, field: Field | None) -> Iterable[Any]:
    """Returns the values of a column. Those of arrays and ids are arrays of numpy, which keep the type of their numbers."""
    of = None if field is None else field.array_type()
    if field is not None and of is not None:
        return (_array(column, row, field, of[1]) for row in range(len(column)))
    if field is not None and field.type.startswith("ids") and _is_list(column.type):
        return (_array(column, row, field, [None]) for row in range(len(column)))
    if field is not None and field.type in ("image", "list<image>"):
        return map(_file, column.to_pylist())
    values: list[Any] = column.to_pylist()
    return values


def _is_list(ty: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(ty) or pa.types.is_large_list(ty) or pa.types.is_fixed_size_list(ty))


def _array(column: Any, row: int, field: Field, axes: list[int | None]) -> Any:
    import pyarrow as pa

    cell = column[row]
    if not cell.is_valid:
        return None
    try:
        if _is_list(column.type):
            return _numbers(cell.values, axes)
        if pa.types.is_struct(column.type) and set(_SHAPED) <= set(cell):
            # As datasets of dsconvert store arrays with several open axes.
            data, shape = (cell[name] for name in _SHAPED)
            return _numbers(data.values, [None]).reshape(shape.as_py())
    except ValueError as error:
        raise InvalidRecord("wrong-type", f"field {field.name!r} is of type {field.type}, not of lists that are no array: {error}") from None
    # A number, as an array without axes: with its type.
    return column.slice(row, 1).to_numpy(zero_copy_only=False)[0]


def _numbers(items: Any, axes: list[int | None]) -> Any:
    """Returns the array of the items of a list, which may be lists themselves. `axes` are those of the array.

    Raises:
        ValueError: If it is no array.
    """
    import numpy as np
    import pyarrow as pa

    sizes = [len(items)]
    while pa.types.is_fixed_size_list(items.type) and not items.null_count:
        sizes.append(items.type.list_size)
        items = items.flatten()
    if items.null_count:
        raise ValueError("a list has a null")
    if _is_list(items.type):
        if len(items) == 0:
            rest = [size or 0 for size in axes[len(sizes) :]]
            while _is_list(items.type):
                items = items.flatten()
            return np.empty([*sizes, *rest], items.type.to_pandas_dtype())
        inner = np.stack([_numbers(item.values, axes[len(sizes) :]) for item in items])
        return inner.reshape(*sizes, *inner.shape[1:])
    return items.to_numpy(zero_copy_only=False).reshape(sizes)


def _file(value: Any) -> Any:
    """Returns the bytes of a file that is stored as the library `datasets` does, beside its path."""
    if isinstance(value, list):
        return [_file(item) for item in value]
    if isinstance(value, Mapping) and value.get("bytes") is not None:
        return value["bytes"]
    return value
