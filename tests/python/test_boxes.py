"""Other libraries read boxes, in all formats, as `tests/golden/boxes.rs` wrote them."""

import json
import tarfile

import datasets
import duckdb
import numpy as np
import polars
import pytest
from conftest import ROOT
from dataset import FORMATS, Dataset

GOLDEN = ROOT / "fixtures/golden/v3"
CLASSES = ["person", "traffic light", "кот"]


def written(key):
    """Boxes, labels and crowds of the golden record with this key."""
    i = int(key.removeprefix("image-").removesuffix(".png"))
    if i % 5 == 4:
        return None, None, None
    at = np.arange(i * i * 7 % 61, dtype=np.float32)
    left, top = at / np.float32(3) + np.float32(i), at * np.float32(1.25)
    boxes = np.stack([left, top, left + np.float32(0.1) + at, top + np.float32(480)], 1)
    numbers = at.astype(int)
    crowds = (numbers == 5).astype(int) - (numbers == 50)
    return boxes.tolist(), (numbers * numbers % 3).tolist(), crowds.tolist()


def lists(boxes, labels, crowds):
    """The documented way to read the bytes of msgpack and protobuf."""
    if boxes is None:
        return None, None, None
    boxes = np.frombuffer(boxes, dtype="<f4").reshape(-1, 4)
    return boxes.tolist(), *(np.frombuffer(numbers, dtype="<i8").tolist() for numbers in (labels, crowds))


class Boxed(Dataset):
    def from_msgpack(self, record):
        names = ["boxes", "labels", "iscrowd"]
        return {**record, **dict(zip(names, lists(*(record[name] for name in names))))}

    def from_protobuf(self, message):
        values = []
        for field, case in zip(message.extra, ["boxes_value", "box_labels_value", "box_ints_value"], strict=True):
            assert field.WhichOneof("value") in (case, None)
            values.append(getattr(field, case) if field.WhichOneof("value") else None)
        names = [field.name for field in message.extra]
        return {"key": message.key, **dict(zip(names, lists(*values), strict=True))}


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_record_has_its_boxes(fmt, protobuf):
    records = Boxed(GOLDEN / f"boxes-{fmt}", protobuf).all_records()
    assert len(records) == 14
    for key, record in records.items():
        assert (record["boxes"], record["labels"], record["iscrowd"]) == written(key)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_tables_open_as_nested_lists(fmt, protobuf, tmp_path):
    dataset = Dataset(GOLDEN / f"boxes-{fmt}", protobuf)
    read = {"parquet": polars.read_parquet, "arrow": polars.read_ipc}[fmt]
    for split in dataset.splits:
        files = [str(shard) for shard in dataset.shards(split)]
        table = polars.concat(read(file) for file in files)
        box = polars.List(polars.Float32) if fmt == "parquet" else polars.Array(polars.Float32, 4)
        assert table.schema["boxes"] == polars.List(box)
        assert table.schema["labels"] == table.schema["iscrowd"] == polars.List(polars.Int64)
        theirs = datasets.load_dataset(fmt, data_files=files, split="train", cache_dir=str(tmp_path))
        assert theirs.features["labels"] == datasets.List(datasets.ClassLabel(names=CLASSES))
        theirs = theirs.select_columns(["key", "boxes", "labels", "iscrowd"])
        rows = [*table.select("key", "boxes", "labels", "iscrowd").to_dicts(), *theirs]
        if fmt == "parquet":
            columns = ["key", "boxes", "labels", "iscrowd"]
            found = duckdb.sql(f"select {', '.join(columns)} from read_parquet({files})").fetchall()
            rows += [dict(zip(columns, row)) for row in found]
        assert len(rows) == (3 if fmt == "parquet" else 2) * dataset.manifest["splits"][split]["records"]
        for row in rows:
            boxes = row["boxes"] and [list(box) for box in row["boxes"]]
            assert (boxes, row["labels"], row["iscrowd"]) == written(row["key"])


def test_exports_have_boxes(dsconvert, tmp_path):
    dsconvert("export", GOLDEN / "boxes-msgpack", "--to", "hf", "--out", tmp_path / "hf")
    theirs = datasets.load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    assert theirs.features["labels"] == datasets.List(datasets.ClassLabel(names=CLASSES))
    assert theirs.features["boxes"].feature.feature == datasets.Value("float32")
    assert len(theirs) == 11
    for row in theirs.select_columns(["key", "boxes", "labels", "iscrowd"]):
        assert (row["boxes"], row["labels"], row["iscrowd"]) == written(row["key"])
    dsconvert("export", GOLDEN / "boxes-arrow", "--to", "webdataset", "--out", tmp_path / "tar")
    found = 0
    for path in sorted((tmp_path / "tar").rglob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    row, found = json.loads(tar.extractfile(member).read()), found + 1
                    boxes = row["boxes"] and np.array(row["boxes"], np.float32).tolist()
                    assert (boxes, row["labels"], row["iscrowd"]) == written(row["key"])
    assert found == 14
