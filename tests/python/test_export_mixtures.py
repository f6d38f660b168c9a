"""`dsconvert export A B --mixture …` writes the documents in the order of a loader with batches of one record."""

import json
import random

import numpy as np
import pytest

import dsconvert
from test_package_mixtures import pool, text_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_ranks")

EOS = 257  # of the tokenizer `bytes`


def documents(paths, weights, seed, **mixture):
    """The token ids of the records that a loader draws one by one."""
    mixed = dsconvert.Mixture(dict(zip(paths, weights)), **mixture)
    loader = dsconvert.Loader(mixed, batch_size=1, seed=seed, rank=0, world_size=1)
    # Of a loader that pads nothing, `input_ids` are whole records.
    return [batch["input_ids"][0].tolist() for batch in loader]


def exported(command, paths, weights, to, out, *more, **options):
    arguments = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    command("export", *paths, "--mixture", ",".join(map(repr, weights)), "--to", to, "--out", out, *arguments, *more)
    return json.loads((out / "export.json").read_text())


def a_mixture(choose, pool):  # noqa: F811
    names = choose.sample([name for name in pool if name != "chats"], choose.randrange(1, 5))
    weights = [choose.choice([0.1, 0.7, 1, 3, choose.random()]) for _ in names]
    ends = [
        {"epoch_tokens": 700}, {"epoch_steps": 60}, {"exhausted": "first_exhausted"}, {"exhausted": "all_exhausted"}
    ]
    mixture = {"unit": choose.choice(["tokens", "records", "epochs"])} | choose.choice(ends)
    return [pool[name].path for name in names], weights, mixture


@pytest.mark.parametrize("seed", range(24))
def test_flat_tokens_are_in_the_order_of_a_loader(command, pool, tmp_path, seed):  # noqa: F811
    paths, weights, mixture = a_mixture(random.Random(f"tokens {seed}"), pool)
    expected = documents(paths, weights, seed, **mixture)
    described = exported(command, paths, weights, "tokens", tmp_path / "out", **mixture, seed=seed)
    assert described["splits"]["train"]["records"] == len(expected)
    ids = np.fromfile(tmp_path / "out/train.bin", np.uint16)
    assert ids.tolist() == [token for document in expected for token in [*document, EOS]]
    starts = np.load(tmp_path / "out/train.documents.npy")
    assert np.diff(starts).tolist() == [len(document) + 1 for document in expected]


@pytest.mark.parametrize("seed", range(4))
def test_megatron_reads_the_documents_in_the_order_of_a_loader(command, pool, tmp_path, seed):  # noqa: F811
    megatron = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    paths, weights, mixture = a_mixture(random.Random(f"megatron {seed}"), pool)
    expected = documents(paths, weights, seed, **mixture)
    parts = min(3, len(expected))
    exported(
        command, paths, weights, "megatron", tmp_path / "out", "--eod", "none", "--parts", parts, **mixture, seed=seed
    )
    names = ["train"] if parts == 1 else [f"train-{part:05}" for part in range(parts)]
    found = [
        document.tolist()
        for name in names
        for document in megatron.IndexedDataset(str(tmp_path / "out" / name))
    ]
    assert found == expected


def test_masks_and_packed_rows_are_mixed(command, pool, text_of, tmp_path):  # noqa: F811
    """A dataset without masks trains on all tokens beside one that marks them."""
    import pyarrow.parquet as pq

    paths = [pool["chats"].path, pool["web"].path]
    exported(command, paths, [1, 1], "megatron-bridge", tmp_path / "out", unit="records", epoch_steps=30, seed=5)
    rows = pq.read_table(tmp_path / "out/train.idx.parquet").to_pylist()
    mixed = dsconvert.Mixture(dict(zip(paths, [1, 1])), unit="records", epoch_steps=30)
    loader = dsconvert.Loader(mixed, batch_size=1, seed=5, rank=0, world_size=1)
    records = [mixed[loader.last.records[0]] for _ in loader]
    assert [row["input_ids"] for row in rows] == [record["input_ids"].tolist() for record in records]
    assert [row["loss_mask"][:-1] for row in rows] == [record["assistant_masks"].tolist()[1:] for record in records]
    packed = [text_of(f"packed-{name}", [name * (5 + at % 9) for at in range(30)], "--pack", "16") for name in "xy"]
    exported(command, packed, [2, 1], "tokens", tmp_path / "rows", epoch_tokens=300, eod="none")
    expected = documents(list(map(str, packed)), [2, 1], 0, epoch_tokens=300)
    ids = np.fromfile(tmp_path / "rows/train.bin", np.uint16)
    assert ids.tolist() == [token for row in expected for token in row if token]
