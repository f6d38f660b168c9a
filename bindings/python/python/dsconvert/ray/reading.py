"""`dsconvert.ray.read`: the records of a dataset as a `ray.data.Dataset`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dataset import Split, open
from ..errors import UsageError
from .requirement import import_optional

if TYPE_CHECKING:
    import ray.data

# Shard bytes per block. Ray recommends blocks of 1 to 128 MiB.
BLOCK_BYTES = 32 << 20

TYPES: dict[str, str | tuple[str, str]] = {
    "string": "string",
    "json": "string",
    "binary": "binary",
    "image": "binary",
    "mask": "binary",
    "bool": "bool_",
    "int32": "int32",
    "int64": "int64",
    "uint32": "uint32",
    "uint64": "uint64",
    "float32": "float32",
    "float64": "float64",
    "label": "int64",
    "ids<u16>": ("list_", "uint16"),
    "ids<u32>": ("list_", "uint32"),
    "flags": ("list_", "int8"),
}
"""Field types, and the pyarrow functions that create the types of their columns."""


class ShardRows(NamedTuple):
    """The range of records that one shard holds, in its split, and its size."""

    first: int
    records: int
    bytes: int


def read(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    fields: Sequence[str] | None = None,
    verify_checksums: bool = True,
    num_cpus: float | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ray.data.Dataset:
    """Returns the records of `split` [default: `train`, or the only one] as a `ray.data.Dataset`.

    There is one read task per shard, which returns Arrow blocks of about 32 MiB. Ray keeps the record order only with
    `DataContext.get_current().execution_options.preserve_order = True`. Images are encoded bytes, token ids
    are lists. All nodes must see the dataset under the same path, or `path` is a URL such as `s3://bucket/dataset`, for
    which `storage_options` override the environment of each node. Every record is compared with its checksum unless
    `verify_checksums` is false. `fields` selects and orders the columns.
    """
    data = import_optional("ray.data")
    if fields is not None and len(fields) == 0:
        raise UsageError("fields is empty: a ray.data.Dataset needs a column", remedy="name at least one field")
    dataset = open(path, verify_checksums=verify_checksums, storage_options=storage_options)
    chosen = dataset.default if split is None else dataset.split(split)
    if fields is not None:
        chosen = chosen.select(fields)
    # A read task without records would be useless.
    shards = [shard for shard in map(ShardRows._make, chosen._handle().shards()) if shard.records]
    source = _datasource(chosen, shards)
    options: dict[str, Any] = {} if num_cpus is None else {"num_cpus": num_cpus}
    result: ray.data.Dataset = data.read_datasource(source, override_num_blocks=max(1, len(shards)), **options)
    return result


def _datasource(split: Split, shards: list[ShardRows]) -> Any:
    """Creates a datasource with one read task per shard."""
    base = import_optional("ray.data.datasource")
    block = import_optional("ray.data.block")
    schema = _schema(split)

    class DsconvertDatasource(base.Datasource):  # type: ignore[name-defined,misc]
        def estimate_inmemory_data_size(self) -> int:
            return sum(shard.bytes for shard in shards)

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: object = None
        ) -> list[Any]:
            return [self._task(shard, per_task_row_limit) for shard in shards]

        def _task(self, shard: ShardRows, limit: int | None) -> Any:
            size = block.BlockMetadata(
                num_rows=shard.records, size_bytes=shard.bytes, input_files=None, exec_stats=None
            )
            read_shard = functools.partial(_blocks, split, shard)
            return base.ReadTask(read_shard, size, schema=schema, per_task_row_limit=limit)

    return DsconvertDatasource()


def _schema(split: Split) -> Any:
    """Returns the `pyarrow.Schema` of the records."""
    pa = import_optional("pyarrow")

    def column(name: str) -> Any:
        kind = TYPES[name]
        if isinstance(kind, str):
            return getattr(pa, kind)()
        outer, inner = kind
        return getattr(pa, outer)(getattr(pa, inner)())

    return pa.schema([(name, column(kind)) for name, kind in split.fields.items()])


def _blocks(split: Split, shard: ShardRows) -> Iterator[Any]:
    """Yields the records of a shard as `pyarrow.Table`s. Ray calls this in a task."""
    pa = import_optional("pyarrow")

    schema = _schema(split)
    step = max(1, shard.records * BLOCK_BYTES // max(shard.bytes, 1))
    end = shard.first + shard.records
    for first in range(shard.first, end, step):
        records = split[first : min(first + step, end)]
        columns = [pa.array([record[field.name] for record in records], field.type) for field in schema]
        yield pa.Table.from_arrays(columns, schema=schema)
