"""A `BatchSampler` gives the batches, and a `Loader` the packed rows, that `docs/reference/batching.md` specifies."""

import random

import pytest

import dsconvert
from batch_plan import BatchPlan, PackPlan

pytestmark = pytest.mark.usefixtures("no_ranks")

PADDING = 10**6  # no token has this id


def a_configuration(choose):
    """Lengths of some records, and options of a sampler."""
    longest = choose.choice([1, 5, 50, 400])
    spread = choose.choice([lambda: choose.randrange(longest + 1), lambda: int(choose.expovariate(8 / longest)) % (longest + 1)])
    lengths = [spread() for _ in range(choose.choice([1, 2, 5, 20, 100, 300, 1000]))]
    options = {
        "seed": choose.randrange(1000),
        "last": choose.choice(["short", "drop", "wrap"]),
        "micro_batches": choose.choice([1, 1, 2, 4]),
    }
    size = choose.choice(["batch_size", "max_tokens", "max_tokens_unpadded"])
    # No record exceeds the budget, also when its width is rounded up.
    options[size] = choose.choice([1, 3, 8, 32] if size == "batch_size" else [408, 1000, 4096])
    if size != "max_tokens_unpadded":
        options["pad_to_multiple_of"] = choose.choice([1, 1, 8])
    bucket = choose.choice(["length", "length", "length", "geometric", "given", "none", "windows"])
    options["bucket"] = sorted(choose.sample(range(1, 500), 5)) if bucket == "given" else bucket
    if bucket == "length":
        options["max_waste"] = choose.choice([0.01, 0.04, 0.3])
    elif bucket == "geometric":
        options |= {"first_boundary": choose.choice([1, 16, 50]), "boundary_ratio": choose.choice([1.1, 1.5, 2.0])}
    elif bucket == "windows":
        options["window_steps"] = choose.choice([1, 3, 50])
    options["shuffle"] = choose.choice([True, True, False, "block" if bucket in ("none", "windows") else True])
    if options["shuffle"] == "block":
        options |= {"block_records": choose.choice([4, 16]), "block_group": choose.choice([2, 8])}
    return lengths, options


@pytest.mark.parametrize("seed", range(60))
def test_batches_are_those_of_the_specification(seed):
    lengths, options = a_configuration(random.Random(seed))
    sampler = dsconvert.BatchSampler(lengths, rank=0, world_size=1, **options)
    specified = BatchPlan(lengths, **options)
    for epoch in range(3):
        assert list(sampler) == specified.micro_batches(epoch), f"epoch {epoch}"


@pytest.mark.parametrize("seed", range(30))
def test_packed_rows_are_those_of_the_specification(corpus_in, seed):
    choose = random.Random(seed)
    split = dsconvert.open(corpus_in("arrow").path, choose.choice(["train", "validation"]))
    options = {
        "seq_len": choose.choice([7, 64, 500]),
        "packing": choose.choice(["best_fit", "concat"]),
        "pack_window": choose.choice([1, 5, 40, 4096, None]),
        "batch_size": choose.choice([1, 4, 13]),
        "shuffle": choose.choice([True, False, "block"]),
        "seed": choose.randrange(1000),
        "last": choose.choice(["short", "drop", "wrap"]),
        "micro_batches": choose.choice([1, 1, 3]),
    }
    if options["shuffle"] == "block":
        options |= {"block_records": 4, "block_group": 3}
    loader = dsconvert.Loader(split, fields=["input_ids"], pad_id=PADDING, rank=0, world_size=1, **options)
    specified = PackPlan(split.lengths().tolist(), **options)
    ids = [record["input_ids"].tolist() for record in split]
    for epoch in range(2):
        for batch, rows in zip(loader, specified.micro_batches(epoch), strict=True):
            expected = [[token for record, start, end in row for token in ids[record][start:end]] for row in rows]
            assert batch["input_ids"].tolist() == [row + [PADDING] * (options["seq_len"] - len(row)) for row in expected]


def test_default_windows_have_256_rows(request, tmp_path):
    choose = random.Random(5)
    lines = ["x" * choose.randrange(1, 40) for _ in range(16_000)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    convert = request.getfixturevalue("dsconvert")
    convert("text", tmp_path / "corpus.txt", "--documents", "line", "--tokenizer", "bytes", "--out", tmp_path / "out")
    split = dsconvert.open(tmp_path / "out", "train")
    options = {"seq_len": 1024, "batch_size": 4, "seed": 3}
    loader = dsconvert.Loader(split, fields=["input_ids"], pad_id=PADDING, rank=0, world_size=1, **options)
    rows = [row for batch in loader for row in batch["input_ids"]]
    specified = [row for batch in PackPlan(split.lengths().tolist(), **options).micro_batches(0) for row in batch]
    pieces = [sum(end - start for _, start, end in row) for row in specified]
    assert [int((row != PADDING).sum()) for row in rows] == pieces
    # The whole corpus in one window.
    least = -(-sum(map(len, lines)) // 1024)
    assert least <= len(rows) <= least + 2
