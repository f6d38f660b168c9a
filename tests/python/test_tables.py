"""pyarrow, polars and DuckDB open arrow and parquet shards."""

import json

import duckdb
import polars as pl
import pyarrow as pa
import pytest

TYPES = {
    "images": {
        "key": pa.string(),
        "image": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        "width": pa.uint32(),
        "height": pa.uint32(),
        "label": pa.int64(),
        "origin": pa.string(),
    },
    "text": {"key": pa.string(), "input_ids": pa.uint16(), "length": pa.uint32(), "origin": pa.string()},
}


def test_pyarrow_finds_the_declared_schema(columnar):
    for split in columnar.splits:
        schema = columnar.table(split).schema
        types = {f.name: f.type.value_type if pa.types.is_list(f.type) else f.type for f in schema}
        assert types == TYPES[columnar.kind]
        assert list(types) == [f["name"] for f in columnar.manifest["schema"]["fields"]]


def test_required_fields_are_never_null(columnar):
    """Some of their columns are declared nullable, because libraries expect that, but have no nulls."""
    for split in columnar.splits:
        table = columnar.table(split)
        for field in columnar.manifest["schema"]["fields"]:
            assert field["nullable"] or table[field["name"]].null_count == 0


def test_the_metadata_names_the_features(columnar):
    metadata = columnar.table(columnar.splits[0]).schema.metadata
    features = json.loads(metadata[b"huggingface"])["info"]["features"]
    assert list(features) == list(TYPES[columnar.kind])
    if columnar.kind == "images":
        assert features["image"] == {"_type": "Image"}
        assert features["label"] == {"_type": "ClassLabel", "names": columnar.manifest["schema"]["class_names"]}


def test_pyarrow_counts_what_the_manifest_counts(columnar):
    for split in columnar.splits:
        assert columnar.table(split).num_rows == columnar.manifest["splits"][split]["records"] > 0


def test_polars_reads_the_same_values(columnar):
    read = pl.read_ipc if columnar.format == "arrow" else pl.read_parquet
    for split in columnar.splits:
        frame = pl.concat([read(shard) for shard in columnar.shards(split)])
        rows = frame.to_dicts()
        for row in rows:
            if columnar.kind == "images":
                row["image"] = row["image"]["bytes"]
        assert rows == columnar.records(split)


@pytest.mark.parametrize("kind", ["images"], indirect=True)
def test_images_are_not_compressed_again(kind, photos_in):
    import pyarrow.parquet as pq

    for split in ("train", "validation"):
        for shard in photos_in("parquet").shards(split):
            group = pq.ParquetFile(shard).metadata.row_group(0)
            codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
            assert codecs["image.bytes"] == "UNCOMPRESSED"
            assert codecs["key"] == "ZSTD"


def test_duckdb_queries_tokens(corpus_in):
    corpus = corpus_in("parquet")
    for split in corpus.splits:
        shards = [str(shard) for shard in corpus.shards(split)]
        count, tokens, longest, agree = duckdb.execute(
            "select count(*), sum(length), max(len(input_ids)), bool_and(length = len(input_ids)) from read_parquet(?)",
            [shards],
        ).fetchone()
        summary = corpus.manifest["splits"][split]
        assert (count, tokens, longest) == (summary["records"], summary["length"]["total"], summary["length"]["max"])
        assert agree


def test_duckdb_queries_images(photos_in):
    photos = photos_in("parquet")
    shards = [str(shard) for split in photos.splits for shard in photos.shards(split)]
    rows = duckdb.execute(
        "select label, count(*), min(octet_length(image.bytes)) from read_parquet(?) group by label order by label",
        [shards],
    ).fetchall()
    assert [label for label, _, _ in rows] == list(range(5))
    assert sum(count for _, count, _ in rows) == photos.manifest["converted"]
    assert all(smallest > 100 for _, _, smallest in rows)
