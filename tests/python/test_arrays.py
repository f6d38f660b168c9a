"""Other libraries read arrays, as `tests/golden/arrays.rs` wrote them."""

import io
import tarfile

import datasets
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
from conftest import ROOT
from dataset import Dataset

GOLDEN = ROOT / "fixtures/golden/v3"
FIXED = [
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64",
]
SHAPES = {
    "number": ("int16", lambda i: ()),
    "scores": ("float32", lambda i: (i % 5,)),
    "frames": ("float64", lambda i: (i % 4, 2)),
    "latent": ("bfloat16", lambda i: (4, i % 3, 1 + i % 2)),
    **{dtype: (dtype, lambda i: (2, 3)) for dtype in FIXED},
}


def numbers(dtype, i, count):
    value = i * 10 + np.arange(count, dtype=np.uint64)
    match dtype:
        case "uint8" | "int8":
            return value.astype(np.uint8).view(dtype)
        case "uint16" | "int16":
            return (value * 997).astype(np.uint16).view(dtype)
        case "uint32" | "int32":
            return (value * 0x13579BDF).astype(np.uint32).view(dtype)
        case "uint64" | "int64":
            return (value << np.uint64(57) | np.arange(count, dtype=np.uint64)).view(dtype)
        case "float16":
            return (1 + value / 1024).astype(np.float16)
        case "bfloat16":
            return (value.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "float32":
            return value.astype(np.float32) / np.float32(3)
        case "float64":
            return value / 3


def tags(key):
    i = int(key.removeprefix("record-"))
    return None if i % 6 == 5 else [f"tag {at * i}" for at in range(i % 4)]


def written(name, key):
    i = int(key.removeprefix("record-"))
    if i % 6 == 5:
        return None
    dtype, shape = SHAPES[name]
    return numbers(dtype, i, int(np.prod(shape(i)))).reshape(shape(i))


def same(found, name, key):
    """Compares lists of numbers, or numbers and a shape."""
    expected = written(name, key)
    if expected is None or not isinstance(found, dict):
        as_lists = lambda value: [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
        return as_lists(found) == (expected if expected is None else expected.tolist())
    return found["shape"] == list(expected.shape) and list(found["data"]) == expected.reshape(-1).tolist()


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_tables_have_arrays(fmt, tmp_path):
    dataset = Dataset(GOLDEN / f"arrays-{fmt}", None)
    files = [str(shard) for shard in dataset.shards("train")]
    read = {"parquet": polars.read_parquet, "arrow": polars.read_ipc}[fmt]
    tables = {"polars": polars.concat(read(file) for file in files).to_dicts()}
    tables["pyarrow"] = [row for file in dataset.shards("train") for row in dataset._open_table(file).to_pylist()]
    theirs = datasets.load_dataset(fmt, data_files=files, split="train", cache_dir=str(tmp_path))
    # Parquet has neither sizes of lists nor offsets.
    lists = {"parquet": datasets.List, "arrow": datasets.LargeList}[fmt]
    size = {"parquet": lambda n: -1, "arrow": lambda n: n}[fmt]
    of = theirs.features
    assert of["float16"] == datasets.List(datasets.List(datasets.Value("float16"), length=size(3)), length=size(2))
    assert of["bfloat16"].feature.feature == datasets.Value("uint16")
    assert of["scores"] == lists(datasets.Value("float32"))
    assert of["frames"] == lists(datasets.List(datasets.Value("float64"), length=size(2)))
    shape = datasets.List(datasets.Value("int32"), length=size(3))
    assert of["latent"] == {"data": lists(datasets.Value("uint16")), "shape": shape}
    assert of["number"] == datasets.Value("int16") and of["tags"] == lists(datasets.Value("string"))
    tables["datasets"] = list(theirs)
    if fmt == "parquet":
        found = duckdb.sql(f"select * from read_parquet({files})")
        tables["duckdb"] = [dict(zip(found.columns, row)) for row in found.fetchall()]
    else:
        schema = polars.read_ipc_schema(files[0])
        assert schema["float32"] == polars.Array(polars.Float32, (2, 3))
        arrow = pa.ipc.open_file(files[0]).schema
        assert arrow.field("latent").type.field("data").type == pa.large_list(pa.uint16())
        assert b'"array<bfloat16>[4,?,?]"' in arrow.metadata[b"huggingface"]
    for library, rows in tables.items():
        assert len(rows) == 13
        for row in rows:
            for name in SHAPES:
                assert same(row[name], name, row["key"]), (library, name, row["key"], row[name])
            assert row["tags"] == tags(row["key"])


def test_exports_have_arrays(dsconvert, tmp_path):
    dsconvert("export", GOLDEN / "arrays-arrow", "--to", "hf", "--out", tmp_path / "hf")
    theirs = datasets.load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    card = datasets.load_dataset_builder(str(tmp_path / "hf"), cache_dir=str(tmp_path / "cache")).info.features
    assert card == theirs.features
    assert theirs.features["latent"]["data"] == datasets.List(datasets.Value("uint16"))
    assert theirs.features["tags"] == datasets.List(datasets.Value("string"))
    for row in theirs:
        assert all(same(row[name], name, row["key"]) for name in SHAPES) and row["tags"] == tags(row["key"])
    dsconvert("export", GOLDEN / "arrays-parquet", "--to", "webdataset", "--out", tmp_path / "tar")
    found = 0
    for path in sorted((tmp_path / "tar").rglob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, extension = member.name.partition(".")
                if extension.removesuffix(".npy") in SHAPES:
                    array = np.load(io.BytesIO(tar.extractfile(member).read()))
                    expected = written(extension.removesuffix(".npy"), key)
                    assert array.dtype == expected.dtype and array.shape == expected.shape and (array == expected).all()
                    found += 1
    assert found == 11 * len(SHAPES)


def test_inspect_shows_arrays(dsconvert):
    dataset = GOLDEN / "arrays-arrow"
    described = dsconvert("inspect", dataset).stdout
    assert "array<bfloat16>[4,?,?]" in described
    shown = dsconvert("inspect", dataset, "--record", "0").stdout
    assert "tags: \n" in shown and "float16: 2 × 3: 1 1.0009766" in shown and "latent: 4 × 0 × 1:" in shown, shown
