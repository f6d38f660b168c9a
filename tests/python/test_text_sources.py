"""Tables and compressed files written by other programs."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from datetime import datetime

import datasets
import msgpack
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

TEXTS = [f"document {i}, \"quoted\"\nand naïve 😀 {'x' * (i % 50)}" for i in range(500)]
TABLE = pa.table({
    "text": TEXTS,
    "id": list(range(500)),
    "score": pa.array([None if i % 3 else i / 4 for i in range(500)], pa.float32()),
    "tags": [[str(i), None] for i in range(500)],
    "meta": [{"lang": "de", "n": i} for i in range(500)],
})


def converted(dsconvert, source, out, *options):
    """Converts `source` and returns the records with their texts."""
    dsconvert("text", source, "--out", out, "--tokenizer", "bytes", "--format", "msgpack", *options)
    records = []
    for shard in sorted((out / "train").iterdir()):
        for record in msgpack.Unpacker(shard.open("rb")):
            ids = memoryview(record["input_ids"]).cast("H")
            records.append(record | {"text": bytes(ids.tolist()).decode()})
    return records


def large(table):
    """The table with the types that pandas and polars prefer."""
    return table.set_column(0, "text", table["text"].cast(pa.large_string()))


WRITERS = {
    "snappy.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=70),
    "gzip.parquet": lambda path: pq.write_table(TABLE, path, compression="gzip", data_page_version="2.0"),
    "brotli.parquet": lambda path: pq.write_table(large(TABLE), path, compression="brotli", use_dictionary=False),
    "lz4.parquet": lambda path: pq.write_table(TABLE, path, compression="lz4", data_page_size=1000),
    "zstd.parquet": lambda path: pq.write_table(TABLE, path, compression="zstd", store_schema=False),
    "delta.parquet": lambda path: pq.write_table(
        TABLE.select(["text", "id"]), path, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}),
    "file.arrow": lambda path: ipc(pa.ipc.new_file, path, TABLE),
    "stream.arrow": lambda path: ipc(pa.ipc.new_stream, path, large(TABLE)),
    "view.arrow": lambda path: ipc(
        pa.ipc.new_stream, path, TABLE.set_column(0, "text", TABLE["text"].cast(pa.string_view()))),
    "zstd.arrow": lambda path: pa.feather.write_feather(TABLE, path, compression="zstd", chunksize=60),
    "lz4.arrow": lambda path: pa.feather.write_feather(TABLE, path, compression="lz4"),
}


def test_old_timestamps_keep_dates_beyond_2262(dsconvert, tmp_path):
    days = ["9999-12-31", "2024-02-29", "0001-01-01"]
    times = pa.array([datetime.fromisoformat(day) for day in days], pa.timestamp("us"))
    table = pa.table({"text": days, "when": times, "nested": [{"when": time.as_py()} for time in times]})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(tmp_path / "a.parquet").schema.column(1).physical_type == "INT96"
    found = converted(dsconvert, tmp_path / "a.parquet", tmp_path / "out", "--keep-fields", "when,nested")
    assert [record["when"] for record in found] == [f"{day}T00:00:00" for day in days]
    assert [json.loads(record["nested"])["when"] for record in found] == [f"{day}T00:00:00" for day in days]


def ipc(writer, path, table):
    with writer(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=64)


@pytest.mark.parametrize("name", WRITERS)
def test_tables_written_by_pyarrow_are_read(dsconvert, tmp_path, name):
    source = tmp_path / name
    WRITERS[name](source)
    records = converted(dsconvert, source, tmp_path / "out", "--key-field", "id", "--unit-bytes", "8k")
    assert [r["text"] for r in records] == TEXTS
    assert [r["key"] for r in records] == [str(i) for i in range(500)]
    assert [r["origin"] for r in records] == [f"{name}#{i}" for i in range(500)]


@pytest.mark.parametrize("name", ["snappy.parquet", "file.arrow", "zstd.arrow"])
def test_columns_keep_their_types(dsconvert, tmp_path, name):
    source = tmp_path / name
    WRITERS[name](source)
    records = converted(dsconvert, source, tmp_path / "out", "--keep-fields", "id,score,tags,meta")
    assert [r["id"] for r in records] == TABLE["id"].to_pylist()
    assert [r["score"] for r in records] == TABLE["score"].to_pylist()
    assert [json.loads(r["tags"]) for r in records] == TABLE["tags"].to_pylist()
    assert [json.loads(r["meta"]) for r in records] == TABLE["meta"].to_pylist()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    types = {field["name"]: field["type"] for field in manifest["schema"]["fields"]}
    assert [types[name] for name in ("id", "score", "tags", "meta")] == ["int64", "float32", "json", "json"]


@pytest.mark.parametrize("extension, compress", [
    ("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress),
    (".xz", lambda data: lzma.compress(data[:999]) + lzma.compress(data[999:], check=lzma.CHECK_SHA256)),
])
def test_tables_written_by_the_csv_module_are_read(dsconvert, tmp_path, extension, compress):
    rows = io.StringIO(newline="")
    writer = csv.writer(rows)
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(TEXTS))
    source = tmp_path / f"table.csv{extension}"
    source.write_bytes(compress(rows.getvalue().encode()))
    records = converted(dsconvert, source, tmp_path / "out", "--keep-fields", "id:int64")
    assert [(r["id"], r["text"]) for r in records] == list(enumerate(TEXTS))


ROWS = [{"id": i, "text": text, "meta": {"n": [i, None], "a,b": "]\n\\\"}"}} for i, text in enumerate(TEXTS)]
ARRAYS = {
    "compact.json": lambda path: path.write_text(json.dumps(ROWS, ensure_ascii=False, separators=(",", ":"))),
    "indented.json": lambda path: path.write_text("\ufeff" + json.dumps(ROWS, indent=4)),
    "packed.JSON.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS, indent=1).replace("\n", "\r\n").encode())),
    "lines.json": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "datasets.json": lambda path: datasets.Dataset.from_list(ROWS).to_json(path, lines=False, orient="records"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_json_arrays_are_read(dsconvert, tmp_path, name):
    source = tmp_path / "in" / name
    source.parent.mkdir()
    ARRAYS[name](source)
    records = converted(dsconvert, source, tmp_path / "out", "--keep-fields", "id:int64,meta:json", "--quiet")
    assert [(r["id"], r["text"], json.loads(r["meta"])) for r in records] == [(r["id"], r["text"], r["meta"]) for r in ROWS]
    # In a folder, .json files are skipped, because they may contain anything.
    skipped = dsconvert("text", tmp_path / "in", "--out", tmp_path / "none", "--tokenizer", "bytes", status=3)
    assert "nothing was found" in skipped.stderr


def test_incomplete_and_damaged_json_arrays_keep_their_valid_elements(dsconvert, tmp_path):
    source = tmp_path / "rows.json"
    for text, kept, codes in [
        # The last element is complete only when the array has ended.
        (json.dumps(ROWS)[:-1], 499, ["truncated"]),
        (json.dumps(ROWS) + "\n[]", 499, ["corrupt"]),
        (json.dumps(ROWS[:9])[:-30], 8, ["truncated"]),
        ('[{"text": "a"}, 7, {"text": "b"}]', 2, ["invalid-json"]),
    ]:
        source.write_text(text)
        options = ["--max-rejects", "50%", "--overwrite", "--quiet"]
        assert len(converted(dsconvert, source, tmp_path / "out", *options)) == kept
        rejects = [json.loads(line)["code"] for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
        assert rejects == codes


def test_a_text_column_with_invalid_utf8_is_damage(dsconvert, tmp_path):
    broken = pa.array([b"good", b"caf\xe9"]).view(pa.string())
    source = tmp_path / "broken.parquet"
    whole = pa.table({"text": ["first", "row group"]})
    with pq.ParquetWriter(source, whole.schema) as writer:
        for table in [whole, pa.table({"text": broken}), whole]:
            writer.write_table(table)
    records = converted(dsconvert, source, tmp_path / "out", "--max-rejects", "50%")
    assert [r["text"] for r in records] == ["first", "row group"] * 2
    reject = json.loads((tmp_path / "out/rejects.jsonl").read_text())
    assert (reject["origin"], reject["code"]) == ("broken.parquet#2", "corrupt")


def test_parquet_files_without_rows_have_no_items(dsconvert, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    # Of a row group without rows, pyarrow writes a dictionary page only, and 0 as the offset of the data.
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), source / "empty.parquet")
    with pq.ParquetWriter(source / "some.parquet", pa.schema([("text", pa.string())])) as writer:
        for texts in [["one"], [], ["two"]]:
            writer.write_table(pa.table({"text": pa.array(texts, pa.string())}))
    records = converted(dsconvert, source, tmp_path / "out", "--quiet")
    assert [r["text"] for r in records] == ["one", "two"]
    alone = dsconvert("text", source / "empty.parquet", "--out", tmp_path / "none", "--tokenizer", "bytes", status=3)
    assert "there are no documents in 1 file" in alone.stderr


def test_packed_rows_open_as_lists(dsconvert, tmp_path):
    source = tmp_path / "t.parquet"
    pq.write_table(TABLE, source)
    dsconvert("text", source, "--out", tmp_path / "out", "--tokenizer", "bytes", "--pack", "512")
    table = pq.read_table(tmp_path / "out/train")
    for row in table.to_pylist():
        ends, starts = row["cu_seqlens"], row["piece_starts"]
        assert ends[0] == 0 and ends[-1] == len(row["input_ids"]) == row["length"] <= 512
        assert len(ends) == len(starts) + 1 and all(a < b for a, b in zip(ends, ends[1:]))


def test_xz_data_with_a_large_dictionary_is_unsupported(dsconvert, tmp_path):
    data = bytearray(lzma.compress(b"a document"))
    # The first block: its header size in words, flags, and for LZMA2 the identifier, one property and its value.
    assert data[12:17] == bytes([2, 0, 0x21, 1, 22])
    data[16] = 31  # 192 MiB
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    assert lzma.decompress(data) == b"a document"
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.txt.xz").write_bytes(data)
    (tmp_path / "files/b.txt").write_text("another")
    dsconvert("text", tmp_path / "files", "--out", tmp_path / "out", "--tokenizer", "bytes", "--max-rejects", "1", "--quiet")
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["code"] == "unsupported" and "more than 128 MiB" in reject["message"]
