"""Other libraries read the marks of tokens to train on, in all formats, as `tests/golden/main.rs` wrote them."""

import datasets
import numpy as np
import polars
import pytest
from conftest import ROOT
from dataset import FORMATS, Dataset

GOLDEN = ROOT / "fixtures/golden/v3"


def written(record):
    """Ids and masks of the golden record with this key."""
    i = int(record["key"].removeprefix("chat-"))
    tokens = i * i * 11 % 700
    marks = {3: lambda at: 0, 5: lambda at: 1}
    mark = marks.get(i, lambda at: int(at % (23 * i) >= 20 * i or at % 31 == i))
    return [(at * 7919 + i * 104_729) % 151_936 for at in range(tokens)], [mark(at) for at in range(tokens)]


def flags(runs):
    """The documented way to read the runs of msgpack and protobuf."""
    runs = np.frombuffer(runs, dtype="<u4")
    return np.repeat(np.arange(len(runs)) % 2, runs).astype("int8").tolist()


class Masked(Dataset):
    def from_msgpack(self, record):
        record = super().from_msgpack(record)
        return {**record, "assistant_masks": flags(record["assistant_masks"])}

    def from_protobuf(self, message):
        (field,) = message.extra
        assert field.name == "assistant_masks" and field.WhichOneof("value") == "flags_value"
        return {**super().from_protobuf(message), "assistant_masks": flags(field.flags_value)}


@pytest.fixture
def masked(request, protobuf):
    return Masked(GOLDEN / f"masks-{request.param}", protobuf)


@pytest.mark.parametrize("masked", FORMATS, indirect=True)
def test_every_token_has_its_mark(masked):
    records = masked.all_records()
    assert len(records) == 14
    for record in records.values():
        assert (record["input_ids"], record["assistant_masks"]) == written(record)
    for split in masked.splits:
        trained = [sum(record["assistant_masks"]) for record in masked.records(split)]
        assert masked.index(split, "record_index")["trained"].to_pylist() == trained
        assert masked.manifest["splits"][split]["trained_tokens"] == sum(trained)


@pytest.mark.parametrize("masked", ["parquet", "arrow"], indirect=True)
def test_tables_open_as_lists_of_int8(masked, tmp_path):
    read = {"parquet": polars.read_parquet, "arrow": polars.read_ipc}[masked.format]
    for split in masked.splits:
        files = [str(shard) for shard in masked.shards(split)]
        table = polars.concat(read(file) for file in files)
        assert table.schema["assistant_masks"] == polars.List(polars.Int8)
        theirs = datasets.load_dataset(masked.format, data_files=files, split="train", cache_dir=str(tmp_path))
        assert theirs.features["assistant_masks"] == datasets.List(datasets.Value("int8"))
        assert len(theirs) == len(table) == masked.manifest["splits"][split]["records"]
        for row in [*table.to_dicts(), *theirs]:
            assert (row["input_ids"], row["assistant_masks"]) == written(row)
