"""Index files are plain Arrow files that pyarrow opens, and they agree with the records."""

import hashlib
import struct

import pyarrow as pa


def length_of(record):
    return len(record["input_ids"]) if "input_ids" in record else record["width"] * record["height"]


def test_the_record_index_describes_every_record(anything):
    for split in anything.splits:
        index = anything.index(split, "record_index")
        records = anything.records(split)
        assert index.num_rows == len(records) == anything.manifest["splits"][split]["records"]
        assert index["length"].to_pylist() == [length_of(record) for record in records]
        assert index.schema.field("length").type == pa.uint64()
        if anything.kind == "images":
            for side in ("width", "height"):
                assert index[side].to_pylist() == [record[side] for record in records]
        per_shard = [len(anything.shard_records(shard)) for shard in anything.shards(split)]
        assert index["shard"].to_pylist() == [s for s, n in enumerate(per_shard) for _ in range(n)]


def test_positions_of_columnar_formats_are_group_and_row(columnar):
    import pyarrow.parquet as pq

    for split in columnar.splits:
        expected = []
        for shard in columnar.shards(split):
            if columnar.format == "arrow":
                with pa.ipc.open_file(shard) as reader:
                    sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            else:
                metadata = pq.ParquetFile(shard).metadata
                sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            expected += [group << 32 | row for group, size in enumerate(sizes) for row in range(size)]
        assert columnar.index(split, "record_index")["position"].to_pylist() == expected


def test_the_length_index_sorts_by_length_then_ordinal(anything):
    for split in anything.splits:
        lengths = anything.index(split, "record_index")["length"].to_pylist()
        order = anything.index(split, "length_index")["record"].to_pylist()
        assert order == sorted(range(len(lengths)), key=lambda ordinal: (lengths[ordinal], ordinal))


def test_the_histogram_counts_the_lengths(anything):
    for split in anything.splits:
        lengths = sorted(anything.index(split, "record_index")["length"].to_pylist())
        histogram = anything.index(split, "length_histogram").to_pylist()
        assert [row["length"] for row in histogram] == sorted(set(lengths))
        for row in histogram:
            assert row["count"] == lengths.count(row["length"])
            assert row["first_rank"] == lengths.index(row["length"])


def test_the_shard_table_names_sizes_and_hashes(anything):
    rows = anything.shard_table
    assert len(rows) == sum(split["shards"] for split in anything.manifest["splits"].values())
    first = {split: 0 for split in anything.splits}
    for row in rows:
        data = (anything.path / row["path"]).read_bytes()
        assert row["bytes"] == len(data)
        assert row["sha256"] == hashlib.sha256(data).digest()
        assert row["records"] == len(anything.shard_records(anything.path / row["path"]))
        assert row["first_record"] == first[row["split"]]
        first[row["split"]] += row["records"]


def test_the_checksum_covers_the_canonical_form(anything):
    """CRC32C over the canonical form, implemented here from the specification; it is the same in every format."""
    types = {field["name"]: field["type"] for field in anything.manifest["schema"]["fields"]}
    for split in anything.splits:
        checksums = anything.index(split, "record_index")["crc32c"].to_pylist()
        for record, checksum in zip(anything.records(split), checksums, strict=True):
            assert crc32c(canonical(record, types)) == checksum


def canonical(record, types):
    out = b""
    for name, kind in types.items():
        value = record[name]
        if value is None:
            out += b"\0"
            continue
        out += b"\1"
        if kind.startswith("ids"):
            value = struct.pack(f"<{len(value)}{'H' if kind == 'ids<u16>' else 'I'}", *value)
        elif kind == "string":
            value = value.encode()
        out += struct.pack("<q", value) if isinstance(value, int) else struct.pack("<Q", len(value)) + value
    return out


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    """CRC-32/ISCSI of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def test_our_crc32c_is_the_standard_one():
    assert crc32c(b"123456789") == 0xE3069283
