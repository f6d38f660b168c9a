"""Other libraries, and the Python package, read lists of images, as `tests/golden/image_lists.rs` wrote them."""

import io

import datasets
import duckdb
import polars
import pyarrow as pa
import pytest
from conftest import ROOT
from dataset import Dataset
from PIL import Image

import dsconvert

GOLDEN = ROOT / "fixtures/golden/v4"
PAGES = [((2, 1), (255, 0, 0)), ((1, 3), (0, 0, 255))]


def expected(key):
    """Size and color of each page, or None."""
    i = int(key.removeprefix("document-"))
    return None if i % 6 == 5 else [PAGES[(i + at) % 2] for at in range(i % 4)]


def decoded(pages):
    if pages is None:
        return None
    images = [page if isinstance(page, Image.Image) else Image.open(io.BytesIO(page)) for page in pages]
    return [(image.size, image.convert("RGB").getpixel((0, 0))) for image in images]


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_tables_have_lists_of_images(fmt, tmp_path):
    dataset = Dataset(GOLDEN / f"image-lists-{fmt}", None)
    files = [str(shard) for shard in dataset.shards("train")]
    read = {"parquet": polars.read_parquet, "arrow": polars.read_ipc}[fmt]
    tables = {
        "polars": polars.concat(read(file) for file in files).to_dicts(),
        "pyarrow": [row for file in dataset.shards("train") for row in dataset._open_table(file).to_pylist()],
    }
    if fmt == "parquet":
        rows = duckdb.sql(f"select * from read_parquet({files})").to_arrow_table()
        tables["duckdb"] = rows.to_pylist()
    for rows in tables.values():
        assert len(rows) == 13
        for row in rows:
            pages = row["pages"]
            assert pages is None or all(page["path"] is None for page in pages)
            assert decoded(pages and [page["bytes"] for page in pages]) in (expected(row["key"]), expected(row["key"]) or None)
    theirs = datasets.load_dataset(fmt, data_files=files, split="train", cache_dir=str(tmp_path))
    lists = {"parquet": datasets.List, "arrow": datasets.LargeList}[fmt]
    assert theirs.features["pages"] == lists(datasets.Image())
    for row in theirs:
        assert decoded(row["pages"]) == expected(row["key"])
    with pa.memory_map(files[0]) if fmt == "arrow" else io.BytesIO() as file:
        if fmt == "arrow":
            assert pa.types.is_large_list(pa.ipc.open_file(file).schema.field("pages").type)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_records_and_batches_have_lists_of_images(fmt):
    dataset = dsconvert.open(GOLDEN / f"image-lists-{fmt}", "train")
    assert dataset.kind == "records" and dict(dataset.fields)["pages"] == "list<image>"
    for record in dataset:
        assert decoded(record["pages"]) == expected(record["key"])
    seen = 0
    for batch in dsconvert.Loader(dataset, batch_size=4, num_threads=2):
        for key, pages in zip(batch["key"], batch["pages"], strict=True):
            seen += key is not None
            assert key is None or decoded(pages) == expected(key)
    assert seen == 13
    with pytest.raises(dsconvert.UsageError, match="seq_len does not apply: the dataset holds records"):
        dsconvert.Loader(dataset, seq_len=8)
    with pytest.raises(dsconvert.UsageError, match="decode does not apply: the dataset holds records"):
        dsconvert.open(GOLDEN / f"image-lists-{fmt}", "train", decode=True)
