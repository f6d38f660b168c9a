"""Tables and compressed files written by other programs."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import zlib
from datetime import datetime

import datasets
import msgpack
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

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


def binary(ty):
    """The table as Spark and Impala write it, without declaring strings."""
    return TABLE.set_column(0, "text", TABLE["text"].cast(pa.binary()).cast(ty))


def deltas(writer, path, emit_dictionary_deltas=True):
    """Writes batches whose dictionaries grow."""
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=emit_dictionary_deltas)
    schema = pa.schema([("text", pa.dictionary(pa.int32(), pa.string())), ("id", pa.int64())])
    with writer(str(path), schema, options=options) as out:
        for start in range(0, 500, 100):
            words = pa.DictionaryArray.from_arrays(
                pa.array(range(start, start + 100), pa.int32()), pa.array(TEXTS[:start + 100]))
            out.write_batch(pa.record_batch([words, pa.array(range(start, start + 100))], schema=schema))


def old_v2(path):
    """Writes the pages of Arrow before version 3, which says that they are not compressed (ARROW-17100)."""
    table = TABLE.select(["text", "id"])
    pq.write_table(table, path, data_page_version="2.0", compression="snappy", use_dictionary=False, row_group_size=70)
    data = path.read_bytes()
    created_by = pq.ParquetFile(path).metadata.created_by.encode()
    # The last levels have no bytes, and the flag follows.
    flags = data.count(b"\x15\x00\x11")
    assert flags >= 8
    data = data.replace(b"\x15\x00\x11", b"\x15\x00\x12")
    path.write_bytes(data.replace(created_by, b"parquet-cpp version 1.5.1".ljust(len(created_by), b"-")))
    assert pq.read_table(path)["text"].to_pylist() == TEXTS


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
    "lz4.feather": lambda path: pa.feather.write_feather(TABLE, path),
    "stream.ipc": lambda path: ipc(pa.ipc.new_stream, path, TABLE),
    # The body of these files is not a stream.
    "polars.arrow": lambda path: pl.from_arrow(TABLE).write_ipc(path),
    "polars.zstd.ipc": lambda path: pl.from_arrow(TABLE).write_ipc(
        path, compression="zstd", compat_level=pl.CompatLevel.oldest()
    ),
    "polars.lz4.feather": lambda path: pl.from_arrow(TABLE).write_ipc(path, compression="lz4", record_batch_size=70),
    "polars-stream.arrow": lambda path: pl.from_arrow(TABLE).write_ipc_stream(path),
    "polars.parquet": lambda path: pl.from_arrow(TABLE).write_parquet(path, row_group_size=70),
    "dictionary.arrow": lambda path: ipc(
        pa.ipc.new_file, path, TABLE.set_column(0, "text", TABLE["text"].dictionary_encode())),
    "deltas.arrow": lambda path: deltas(pa.ipc.new_file, path),
    "replaced.arrow": lambda path: deltas(pa.ipc.new_stream, path, emit_dictionary_deltas=False),
    "binary.parquet": lambda path: pq.write_table(binary(pa.binary()), path, row_group_size=70),
    "binary-v2.parquet": lambda path: pq.write_table(
        binary(pa.large_binary()), path, data_page_version="2.0", use_dictionary=False, store_schema=False),
    "binary.arrow": lambda path: ipc(pa.ipc.new_file, path, binary(pa.binary_view())),
    "old-v2.parquet": lambda path: old_v2(path),
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
    "packed.JSON.gz": lambda path: path.write_bytes(
        gzip.compress(json.dumps(ROWS, indent=1).replace("\n", "\r\n").encode())
    ),
    "lines.json": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "datasets.json": lambda path: datasets.Dataset.from_list(ROWS).to_json(path, lines=False, orient="records"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_json_arrays_are_read(dsconvert, tmp_path, name):
    source = tmp_path / "in" / name
    source.parent.mkdir()
    ARRAYS[name](source)
    records = converted(dsconvert, source, tmp_path / "out", "--keep-fields", "id:int64,meta:json", "--quiet")
    assert [(r["id"], r["text"], json.loads(r["meta"])) for r in records] == [
        (r["id"], r["text"], r["meta"]) for r in ROWS
    ]
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


@pytest.mark.parametrize("ty", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_that_are_not_utf8_are_rejected(dsconvert, tmp_path, ty):
    bytes_ = pa.array([b"good", b"caf\xe9", "naïve".encode(), None], pa.binary()).cast(ty)
    keys = pa.array([b"a", b"b", b"c", b"d"], pa.binary())
    table = pa.table({"text": bytes_, "key": keys, "raw": bytes_, "named": pa.array([b"x", b"y", b"\xff", None])})
    for name in ["t.parquet", "t.arrow"]:
        source = tmp_path / name
        if name == "t.arrow":
            ipc(pa.ipc.new_file, source, table)
        elif ty == pa.binary_view():
            continue
        else:
            pq.write_table(table, source)
        options = ["--overwrite", "--quiet", "--key-field", "key", "--keep-fields", "raw", "--max-rejects", "100%"]
        found = converted(dsconvert, source, tmp_path / "out", *options)
        assert [(r["text"], r["key"], r["raw"]) for r in found] == [
            ("good", "a", b"good"), ("naïve", "c", "naïve".encode())
        ]
        rejects = [json.loads(line)["code"] for line in (tmp_path / "out/rejects.jsonl").open()]
        assert rejects == ["invalid-utf8", "missing-field"]
        # A field of strings holds bytes that are text.
        options[-3] = "raw,named:string"
        found = converted(dsconvert, source, tmp_path / "out", *options)
        assert [(r["text"], r["named"]) for r in found] == [("good", "x")]
        options += ["--invalid-utf8", "replace"]
        options[-5] = "raw"
        found = converted(dsconvert, source, tmp_path / "out", *options)
        assert [r["text"] for r in found] == ["good", "caf\ufffd", "naïve"]
        assert json.loads((tmp_path / "out/manifest.json").read_text())["notes"]["invalid_utf8_replaced"] == 1


def test_damaged_and_old_arrow_files_are_rejected(dsconvert, tmp_path):
    source, out = tmp_path / "t.arrow", tmp_path / "out"
    pl.from_arrow(TABLE).write_ipc(source, record_batch_size=50)
    data = source.read_bytes()
    for damaged, code in [
        (data[:-1], "corrupt"),
        (data[:-300] + data[-1:] * 300, "corrupt"),
        (data[:len(data) // 2] + bytes(100) + data[len(data) // 2 + 100:], None),
        (b"FEA1" + data[4:-4] + b"FEA1", "unsupported"),
    ]:
        source.write_bytes(damaged)
        options = ["--overwrite", "--tokenizer", "bytes", "--max-rejects", "100%"]
        done = dsconvert("text", source, "--out", out, *options, status=0 if code is None else 3)
        assert code is None or code in done.stderr, done.stderr
    assert "version 1" in done.stderr and "write_feather" in done.stderr


def test_arrow_files_are_metadata_of_images(dsconvert, tmp_path):
    (tmp_path / "d").mkdir()
    for name in ["a.png", "b.png"]:
        Image.new("RGB", (8, 8)).save(tmp_path / "d" / name)
    captions = ["one", "zwei"]
    table = pa.table({"file_name": ["a.png", "b.png"], "caption": captions, "n": [1, 2]})
    spark = table.set_column(0, "file_name", table["file_name"].cast(pa.binary()))
    spark = spark.set_column(1, "caption", table["caption"].cast(pa.binary()))
    writers = {
        "a.arrow": lambda path: ipc(pa.ipc.new_stream, path, table),
        "b.feather": lambda path: pa.feather.write_feather(table, path),
        "c.ipc": lambda path: pl.from_arrow(table).write_ipc(path, compression="zstd"),
        "d.parquet": lambda path: pq.write_table(spark, path),
        "e.ipc": lambda path: pl.from_arrow(spark).write_ipc(path),
    }
    for name, write in writers.items():
        write(tmp_path / name)
        options = ["--out", tmp_path / f"out-{name}", "--format", "msgpack", "--keep-fields", "caption:string,n"]
        dsconvert("images", tmp_path / "d", "--metadata", tmp_path / name, *options)
        shard = next((tmp_path / f"out-{name}/train").iterdir())
        assert [(r["caption"], r["n"]) for r in msgpack.Unpacker(shard.open("rb"))] == [("one", 1), ("zwei", 2)], name
    (tmp_path / "c.ipc").write_bytes((tmp_path / "c.ipc").read_bytes()[:-2])
    done = dsconvert("images", tmp_path / "d", "--metadata", tmp_path / "c.ipc", "--out", tmp_path / "none", status=2)
    assert "the Arrow data is damaged" in done.stderr


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
    dsconvert("text", source, "--out", tmp_path / "out", "--tokenizer", "bytes", "--pack", "512", "--format", "parquet")
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
    dsconvert(
        "text", tmp_path / "files", "--out", tmp_path / "out", "--tokenizer", "bytes", "--max-rejects", "1", "--quiet"
    )
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["code"] == "unsupported" and "more than 128 MiB" in reject["message"]


def test_a_row_of_commas_does_not_need_much_memory(dsconvert, tmp_path):
    for name, delimiter in [("t.csv", ","), ("t.tsv", "\t")]:
        source, out = tmp_path / name, tmp_path / f"out-{name}"
        source.write_text(f"text{delimiter}n\nfirst{delimiter}1\n" + delimiter * 30_000_000 + f"\nlast{delimiter}2\n")
        found = converted(
            dsconvert, source, out, "--max-rejects", "100%", "--memory", "256MiB", "--report", tmp_path / "r.json"
        )
        assert [record["text"] for record in found] == ["first", "last"]
        reject = json.loads((out / "rejects.jsonl").read_text())
        assert reject["code"] == "too-large" and "30000001 values" in reject["message"]
        # As 8 bytes per value, the row would need more than 240 MB.
        assert json.loads((tmp_path / "r.json").read_text())["peak_memory_bytes"] < 200 << 20


def test_a_fifo_in_place_of_a_manifest_does_not_block(binary, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    os.mkfifo(out / "manifest.json")
    (tmp_path / "a.txt").write_text("text")
    convert = ["text", tmp_path / "a.txt", "--tokenizer", "bytes", "--out", out]
    for command in [[*convert, "--overwrite"], [*convert, "--resume"], ["inspect", out], ["status", out]]:
        done = subprocess.run([binary, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 3 and "this is not a regular file" in done.stderr, done.stderr
