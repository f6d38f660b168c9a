"""msgpack and protobuf shards are read by any streaming reader, and one record at a time through the record index."""

import io

import msgpack
import pytest


def test_an_unpacker_that_is_fed_in_pieces_finds_every_record(kind, photos_in, corpus_in):
    dataset = (photos_in if kind == "images" else corpus_in)("msgpack")
    for split in dataset.splits:
        for shard in dataset.shards(split):
            unpacker, found = msgpack.Unpacker(), []
            data = shard.read_bytes()
            for at in range(0, len(data), 4099):
                unpacker.feed(data[at : at + 4099])
                found += [dataset.from_msgpack(record) for record in unpacker]
            assert unpacker.tell() == len(data)
            assert found == dataset.shard_records(shard)


def test_keys_are_in_schema_order(corpus_in, photos_in):
    def keys(dataset):
        with open(dataset.shards("train")[0], "rb") as stream:
            return list(next(msgpack.Unpacker(stream)))

    assert keys(corpus_in("msgpack")) == ["key", "input_ids", "id_width", "length", "origin"]
    assert keys(photos_in("msgpack")) == ["key", "image", "width", "height", "label", "origin"]


def test_protobuf_messages_are_canonical(kind, photos_in, corpus_in, protobuf):
    """Python's own serialization of each message gives back the bytes of the shard: nothing unknown, nothing extra."""
    from google.protobuf import proto

    dataset = (photos_in if kind == "images" else corpus_in)("protobuf")
    for split in dataset.splits:
        for shard in dataset.shards(split):
            data = shard.read_bytes()
            stream, again = io.BytesIO(data), io.BytesIO()
            while (message := proto.parse_length_prefixed(protobuf.Record, stream)) is not None:
                assert message.WhichOneof("payload") == ("image" if kind == "images" else "text")
                proto.serialize_length_prefixed(message, again)
            assert again.getvalue() == data


@pytest.mark.parametrize("fmt", ["msgpack", "protobuf"])
def test_the_record_index_gives_the_bytes_of_each_record(kind, fmt, photos_in, corpus_in, protobuf):
    from google.protobuf import proto

    dataset = (photos_in if kind == "images" else corpus_in)(fmt)
    for split in dataset.splits:
        shards = [shard.read_bytes() for shard in dataset.shards(split)]
        rows = dataset.index(split, "record_index").to_pylist()
        for row, record in zip(rows, dataset.records(split), strict=True):
            frame = shards[row["shard"]][row["position"] : row["position"] + row["bytes"]]
            assert len(frame) == row["bytes"]
            if fmt == "msgpack":
                assert dataset.from_msgpack(msgpack.unpackb(frame)) == record
            else:
                stream = io.BytesIO(frame)
                assert dataset.from_protobuf(proto.parse_length_prefixed(protobuf.Record, stream)) == record
                assert stream.tell() == len(frame)
