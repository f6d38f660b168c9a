"""Datasets opened with companions in Python: records, loaders, states, mixtures, processes."""

import multiprocessing
import pickle
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dsconvert

SEED = 3


@pytest.fixture(scope="module")
def text_base(command, tmp_path_factory):
    """A dataset of text, and a companion with a score and one weight per token of each record."""
    folder = tmp_path_factory.mktemp("text")
    command(
        "text", "fixtures/corpus", "--out", folder / "base", "--tokenizer", "fixtures/tokenizers/bpe.json", "--quiet"
    )
    base = dsconvert.open(folder / "base")
    keys = [record["key"] for record in base]
    draw = np.random.default_rng(SEED)
    order = draw.permutation(len(keys))
    lengths = base.default.lengths()
    pq.write_table(pa.table({
        "key": [keys[i] for i in order],
        "score": [float(i) for i in order],
        "caption": [f"caption of {keys[i]}" for i in order],
        "weights": pa.array([(np.arange(lengths[i]) + 1).astype(np.float32) for i in order], pa.list_(pa.float32())),
    }), folder / "scores.parquet")
    added = dsconvert.add_fields(
        folder / "base", folder / "scores.parquet", folder / "scores", fields=["score", "caption"]
    )
    assert added == dsconvert.AddedFields(["score", "caption"], len(keys), 0, 0, False)
    return folder


def test_records_and_batches_have_the_fields(text_base):
    plain = dsconvert.open(text_base / "base")
    data = dsconvert.open(text_base / "base", add=[text_base / "scores"])
    assert list(data.fields) == [*plain.fields, "score", "caption"]
    for i, (record, other) in enumerate(zip(data, plain, strict=True)):
        assert record.pop("score") == i and record.pop("caption") == f"caption of {other['key']}"
        assert record.keys() == other.keys() and record["key"] == other["key"]
    assert data[3]["score"] == 3 and [r["score"] for r in data[[5, 1]]] == [5, 1]
    assert data.default.select(["score"])[7] == {"score": 7.0}
    assert data.fingerprint == plain.fingerprint + "+" + dsconvert.open(text_base / "scores").fingerprint
    fields = ["input_ids", "score", "caption"]
    loader = dsconvert.Loader(text_base / "base", add=[text_base / "scores"], batch_size=5, fields=fields, seed=SEED)
    other = dsconvert.Loader(data, batch_size=5, fields=fields, seed=SEED)
    order = dsconvert.Loader(plain, batch_size=5, seed=SEED)
    count = 0
    for batch, same, expected in zip(loader, other, order, strict=True):
        records = loader.last.records
        assert records == order.last.records
        assert batch["score"].tolist() == same["score"].tolist() == records
        assert batch["caption"] == [plain[i]["key"].join(["caption of ", ""]) for i in records]
        assert np.array_equal(batch["input_ids"], expected["input_ids"])
        count += len(records)
    assert count == len(plain)


def test_states_name_the_companions(text_base):
    options = {"batch_size": 5, "seed": SEED}
    loader = dsconvert.Loader(text_base / "base", add=[text_base / "scores"], **options)
    next(iter(loader))
    state = loader.state_dict()
    again = dsconvert.Loader(text_base / "base", add=[text_base / "scores"], **options)
    again.load_state_dict(state)
    assert again.state_dict() == state
    with pytest.raises(dsconvert.UsageError):
        dsconvert.Loader(text_base / "base", **options).load_state_dict(state)


def test_processes_reopen_both(text_base):
    data = pickle.loads(pickle.dumps(dsconvert.open(text_base / "base", add=[text_base / "scores"])))
    assert data[4]["score"] == 4
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(lambda_of(data), [6, 2]) == [6, 2]


class lambda_of:
    def __init__(self, data):
        self.data = data

    def __call__(self, i):
        return self.data[i]["score"]


def test_mixtures_and_lists_need_the_companion_in_each(text_base):
    with_scores = dsconvert.open(text_base / "base", add=[text_base / "scores"])
    plain = dsconvert.open(text_base / "base")
    message = 'has the field "score" of a companion, but'
    with pytest.raises(dsconvert.UsageError, match=message):
        dsconvert.Loader([with_scores, plain], batch_size=4)
    with pytest.raises(dsconvert.UsageError, match=message):
        dsconvert.Mixture({"a": 1, "b": 1}, datasets={"a": with_scores, "b": plain}, epoch_steps=3)
    mixture = dsconvert.Mixture({"a": 1, "b": 1}, datasets={"a": with_scores, "b": with_scores}, epoch_steps=3)
    for batch in dsconvert.Loader(mixture, batch_size=4, fields=["score", "source"]):
        assert batch["score"].shape == (4,)
    for wrong in ({"add": [text_base / "scores"]}, {"add": str(text_base / "scores")}):
        with pytest.raises(dsconvert.UsageError, match="add"):
            dsconvert.open([text_base / "base"], **wrong)
    with pytest.raises(dsconvert.UsageError, match="add applies to the path"):
        dsconvert.Loader(plain, batch_size=4, add=[text_base / "scores"])
    with pytest.raises(dsconvert.UsageError, match="is no companion"):
        dsconvert.open(text_base / "base", add=[text_base / "base"])


def test_errors_of_add_fields_are_those_of_the_package(text_base, tmp_path):
    base, table, out = text_base / "base", text_base / "scores.parquet", tmp_path / "out"
    with pytest.raises(dsconvert.UsageError, match='there is no column "id"'):
        dsconvert.add_fields(base, table, out, on="id")
    with pytest.raises(dsconvert.NotFoundError):
        dsconvert.add_fields(base, text_base / "nothing.parquet", out)
    with pytest.raises(dsconvert.UsageError, match="exclude each other"):
        dsconvert.add_fields(base, table, out, resume=True, overwrite=True)
    with pytest.raises(dsconvert.UsageError, match="missing cannot be 'skip'"):
        dsconvert.add_fields(base, table, out, missing="skip")
    assert not out.exists()
    dsconvert.add_fields(base, table, out, fields={"points": "score"})
    assert dsconvert.open(base, add=[out])[9]["points"] == 9
    with pytest.raises(dsconvert.UsageError):
        dsconvert.add_fields(base, table, out)
    assert dsconvert.add_fields(base, table, out, fields={"points": "score"}, resume=True).was_complete


def test_many_records_are_opened_without_a_join(command, tmp_path):
    count = 100_000
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"text":"{i % 10}","id":"{i}"}}\n' for i in range(count)))
    base, out = tmp_path / "base", tmp_path / "scores"
    command("text", lines, "--out", base, "--tokenizer", "bytes", "--key-field", "id", "--quiet")
    order = np.random.default_rng(SEED).permutation(count)
    pq.write_table(pa.table({"key": pa.array(order).cast(pa.string()), "score": order}), tmp_path / "scores.parquet")
    started = time.monotonic()
    dsconvert.add_fields(base, tmp_path / "scores.parquet", out)
    print(f"add_fields of {count:,} records: {time.monotonic() - started:.1f} s")

    def seconds(**options):
        times = []
        for _ in range(5):
            started = time.monotonic()
            data = dsconvert.open(base, **options)
            record = data[count - 1]
            times.append(time.monotonic() - started)
        assert options == {} or record["score"] == count - 1
        return sorted(times)[2]

    alone, both = seconds(), seconds(add=[out])
    print(f"open and one record: {alone * 1000:.1f} ms, with a companion {both * 1000:.1f} ms")
    data = dsconvert.open(base, "train", add=[out])
    assert [r["score"] for r in data.select(["score"])[::9_999]] == list(range(0, count, 9_999))
