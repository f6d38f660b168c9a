"""Reads a dataset without dsconvert: its JSON files, its indexes, and its shards with third-party libraries."""

import importlib.util
import io
import json
from functools import cached_property
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FORMATS = ["parquet", "arrow", "msgpack", "protobuf"]


def load_protobuf(proto_root, out):
    """Runs protoc on record.proto and imports the result."""
    from grpc_tools import protoc

    status = protoc.main(
        ["protoc", f"--proto_path={proto_root}", f"--python_out={out}", "dsconvert/v1/record.proto"]
    )
    assert status == 0, "protoc refused record.proto"
    # Loaded by path, because its package has the same name as that of dsconvert.
    spec = importlib.util.spec_from_file_location("record_pb2", out / "dsconvert/v1/record_pb2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_arrow(path):
    """The table in an Arrow IPC file."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


class Dataset:
    """A committed dataset. Records are dicts with the field names as keys, whatever the format."""

    def __init__(self, path, protobuf):
        self.path = Path(path)
        self.protobuf = protobuf
        self.manifest = json.loads((self.path / "manifest.json").read_bytes())
        self.format = self.manifest["format"]
        self.kind = self.manifest["schema"]["kind"]
        self.splits = list(self.manifest["splits"])

    @cached_property
    def shard_table(self):
        """One dict per shard, in order."""
        table = open_arrow(self.path / self.manifest["shard_table"]["path"])
        return [{**row, "path": f"{row['split']}/{row['name']}"} for row in table.to_pylist()]

    def shards(self, split):
        """Paths of the shards of a split, in order."""
        return [self.path / row["path"] for row in self.shard_table if row["split"] == split]

    def index(self, split, which):
        """The table of an index: `record_index`, `length_index` or `length_histogram`."""
        entry = self.manifest["splits"][split][which]
        entries = entry if isinstance(entry, list) else [entry]
        return pa.concat_tables([open_arrow(self.path / e["path"]) for e in entries])

    def table(self, split):
        """The split as one Arrow table (arrow and parquet)."""
        return pa.concat_tables(map(self._open_table, self.shards(split)))

    def _open_table(self, shard):
        return open_arrow(shard) if self.format == "arrow" else pq.read_table(shard)

    def shard_records(self, shard):
        """The records of one shard, in order."""
        if self.format in ("arrow", "parquet"):
            return [self._from_columns(row) for row in self._open_table(shard).to_pylist()]
        if self.format == "msgpack":
            with open(shard, "rb") as stream:
                return [self.from_msgpack(record) for record in msgpack.Unpacker(stream)]
        with open(shard, "rb") as stream:
            return list(self._delimited(stream))

    def records(self, split):
        """The records of a split, in order."""
        return [record for shard in self.shards(split) for record in self.shard_records(shard)]

    def all_records(self):
        """The records of all splits by key."""
        records = [record for split in self.splits for record in self.records(split)]
        by_key = {record["key"]: record for record in records}
        assert len(by_key) == len(records), "two records have the same key"
        return by_key

    def _from_columns(self, row):
        if self.kind == "images":
            assert row["image"]["path"] is None, "the image is in the record"
            row["image"] = row["image"]["bytes"]
        return row

    def from_msgpack(self, record):
        """A record of a msgpack shard: token ids become numbers."""
        if self.kind == "text":
            record["input_ids"] = ids(record["input_ids"], record.pop("id_width"))
        return record

    def from_protobuf(self, message):
        """A protobuf message as a record."""
        if self.kind == "images":
            image = message.image
            label = image.label if image.HasField("label") else None
            payload = {"image": image.data, "width": image.width, "height": image.height, "label": label}
        else:
            text = message.text
            payload = {"input_ids": ids(text.input_ids, text.id_width), "length": text.length}
        return {"key": message.key, **payload, "origin": message.origin}

    def _delimited(self, stream):
        from google.protobuf import proto

        stream = io.BytesIO(stream.read())
        while (message := proto.parse_length_prefixed(self.protobuf.Record, stream)) is not None:
            yield self.from_protobuf(message)


def ids(data, width):
    """Token ids from their little-endian bytes."""
    return np.frombuffer(data, dtype={2: "<u2", 4: "<u4"}[width]).tolist()
