"""A `BatchSampler` gives the batches, and a `Loader` the packed rows, that `docs/reference/batching.md` specifies."""

import random

import pytest
from PIL import Image

import dsconvert
from batch_plan import BatchPlan, PackPlan, ShapePlan

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


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Records measured by one column of the index, with a second one."""
    choose = random.Random(4)
    columns = [(choose.randrange(1, 400), choose.choice([0, 0, choose.randrange(500)])) for _ in range(700)]
    out = tmp_path_factory.mktemp("counted") / "out"
    dsconvert.convert(
        lambda at: {"tokens": columns[at][0], "patches": columns[at][1]}, range(700), out,
        {"tokens": "uint32", "patches": "uint32"}, version="1", index=["tokens", "patches"],
    )
    return dsconvert.open(out, "train").with_length("tokens"), columns


@pytest.mark.parametrize("seed", range(40))
def test_batches_with_two_budgets_are_those_of_the_specification(counted, seed):
    split, columns = counted
    choose = random.Random(seed)
    options = {
        choose.choice(["max_tokens", "max_tokens_unpadded"]): choose.choice([400, 1000, 5000]),
        "max_patches": choose.choice([500, 900, 10**6]),
        "bucket": choose.choice(["length", "length", "none", "windows"]),
        "seed": choose.randrange(1000),
        "last": choose.choice(["short", "drop", "wrap"]),
        "micro_batches": choose.choice([1, 2, 6]),
        "shuffle": choose.choice([True, False]),
    }
    if "max_tokens" in options and options["max_tokens"] > 400:
        options["pad_to_multiple_of"] = choose.choice([1, 8, 64])
    specified = BatchPlan([tokens for tokens, _ in columns], patches=[patches for _, patches in columns], **options)
    sampler = dsconvert.BatchSampler(split, rank=0, world_size=1, **options)
    for epoch in range(2):
        found = list(sampler)
        assert found == specified.micro_batches(epoch), f"epoch {epoch}"
        assert max(sum(columns[at][1] for at in batch) for batch in found) <= options["max_patches"]
    batches = [batch for rank in range(2) for batch in dsconvert.BatchSampler(split, rank=rank, world_size=2, **(options | {"micro_batches": 6}))]
    if options["last"] == "short":
        assert sorted(at for batch in batches for at in batch) == list(range(700))


def test_totals_have_both_budgets(counted):
    split, columns = counted
    options = {"max_tokens": 2000, "micro_batches": 2, "rank": 0, "world_size": 1, "seed": 5}
    loader = dsconvert.Loader(split, budget={"patches": 1500}, fields=["tokens", "patches"], **options)
    sampler = dsconvert.BatchSampler(split, max_patches=1500, **options)
    steps = list(sampler)
    seen = 0
    for number, batch in enumerate(loader):
        assert loader.last.records == steps[number]
        assert batch["patches"].tolist() == [columns[at][1] for at in loader.last.records]
        step = steps[number // 2 * 2] + steps[number // 2 * 2 + 1]
        totals = loader.totals()
        assert totals.tokens == sum(columns[at][0] for at in step)
        # The dataset names both columns.
        assert totals.columns == {"tokens": totals.tokens, "patches": sum(columns[at][1] for at in step)}
        assert sampler.totals(number // 2, 0).columns == {"patches": totals.columns["patches"]}
        seen += len(loader.last.records)
    assert seen == 700
    # The state of another budget is refused, and each batch after a state is that of the whole epoch.
    for stop in [1, 2, 7]:
        loader = dsconvert.Loader(split, max_patches=1500, **options)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        rest = dsconvert.Loader(split, budget={"patches": 1500}, **options)
        rest.load_state_dict(state)
        assert [rest.last.records for _ in rest] == steps[stop:]
        with pytest.raises(dsconvert.UsageError, match="saved for"):
            dsconvert.Loader(split, max_patches=1600, **options).load_state_dict(state)


@pytest.mark.parametrize(("options", "message"), [
    ({"batch_size": 4, "max_patches": 900}, "max_patches does not apply: it needs a token budget"),
    ({"max_tokens": 400, "max_patches": 900, "budget": {"patches": 900}}, "not both"),
    ({"max_tokens": 400, "budget": {"patches": 900, "tokens": 4}}, "2 columns, not one"),
    ({"max_tokens": 400, "budget": {"frames": 900}}, 'no column "frames"'),
    ({"max_tokens": 400, "max_patches": 0}, 'the budget for "patches" is 0, not between 1'),
    ({"max_tokens": 400, "max_patches": 100}, "records exceed a budget"),
    ({"max_tokens": 400, "max_patches": 900, "bucket": "geometric"}, "the boundaries are lengths"),
])
def test_budgets_that_do_not_apply_are_refused(counted, options, message):
    for kind in (dsconvert.Loader, dsconvert.BatchSampler):
        with pytest.raises(dsconvert.UsageError, match=message):
            kind(counted[0], **options)


@pytest.mark.parametrize(("mix", "bucket"), [("batch", "length"), (None, "length"), ("record", "none"), (None, "none")])
def test_mixtures_keep_both_budgets_or_refuse_them(counted, mix, bucket):
    split, columns = counted
    datasets = {"a": split, "b": split}
    mixture = dsconvert.Mixture({"a": 1, "b": 2}, datasets=datasets, unit="records", mix=mix, epoch_steps=80)
    options = {"max_tokens": 1000, "max_patches": 700, "bucket": bucket, "rank": 0, "world_size": 1, "fields": ["tokens", "patches"]}
    if bucket == "none":
        with pytest.raises(dsconvert.UsageError, match="drawn one by one"):
            dsconvert.Loader(mixture, **options)
        return
    loader = dsconvert.Loader(mixture, **options)
    assert len(loader) == 80
    for batch in loader:
        assert len(batch["tokens"]) * int(batch["tokens"].max()) <= 1000 and int(batch["patches"].sum()) <= 700
        assert loader.totals().columns["patches"] == int(batch["patches"].sum())


@pytest.fixture(scope="module")
def shapes(request, tmp_path_factory):
    """Images of random shapes, of which some have equally many pixels."""
    choose, folder = random.Random(3), tmp_path_factory.mktemp("shapes")
    (folder / "in").mkdir()
    for number in range(150):
        size = choose.choice([(8, 8), (16, 4), (4, 16), (12, 10), (10, 12), (30, 2)])
        Image.new("RGB", size, (number, 0, 0)).save(folder / f"in/{number:03}.png")
    convert = request.getfixturevalue("dsconvert")
    convert("images", folder / "in", "--encode", "png", "--out", folder / "out")
    return dsconvert.open(folder / "out", "train")


@pytest.mark.parametrize("seed", range(40))
def test_batches_by_shape_are_those_of_the_specification(shapes, seed):
    choose = random.Random(seed)
    size = choose.choice(["batch_size", "max_pixels"])
    options = {
        "bucket": "shape",
        size: choose.choice([1, 3, 8, 100] if size == "batch_size" else [120, 400, 3000]),
        "seed": choose.randrange(1000),
        "last": choose.choice(["short", "drop", "wrap"]),
        "micro_batches": choose.choice([1, 1, 2, 6]),
        "shuffle": choose.choice([True, True, False]),
    }
    records = [(record["width"], record["height"]) for record in shapes]
    sampler = dsconvert.BatchSampler(shapes, rank=0, world_size=1, **options)
    specified = ShapePlan(records, **options)
    for epoch in range(3):
        found = list(sampler)
        assert found == specified.micro_batches(epoch), f"epoch {epoch}"
        assert all(len({records[at] for at in batch}) <= 1 for batch in found)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_ranks_load_every_image_once_in_batches_of_one_shape(shapes, world_size):
    options = {"bucket": "shape", "batch_size": 3, "micro_batches": 24, "world_size": world_size, "seed": 4}

    def loader(rank, **more):
        return dsconvert.Loader(shapes, rank=rank, fields=["image", "width", "height"], **options, **more)

    seen, short, stopped = [], [], []
    for rank in range(world_size):
        ranks = loader(rank)
        assert len(ranks) == len(loader(0))
        for batch in ranks:
            if not ranks.last.records:
                continue
            rows, height, width, channels = batch["image"].shape
            assert channels == 3 and rows == ranks.last.rows
            assert set(batch["width"].tolist()) == {width} and set(batch["height"].tolist()) == {height}
            assert batch["image"][:, 0, 0, 0].tolist() == ranks.last.records
            seen += ranks.last.records
            short += [(width, height)] if rows < 3 else []
        stopped.append(ranks)
    assert sorted(seen) == list(range(150))
    assert len(short) == len(set(short)), "at most one short batch per shape"
    # The rest of the epoch, after its first step, by other ranks.
    first = [loader(rank) for rank in range(world_size)]
    done, states = [], []
    for ranks in first:
        batches = iter(ranks)
        for _ in range(24 // world_size):
            next(batches)
            done += ranks.last.records
        states.append(ranks.state_dict())
    assert all(state == states[0] for state in states)
    for rank in range(4):
        rest = dsconvert.Loader(shapes, rank=rank, **(options | {"world_size": 4}))
        rest.load_state_dict(states[0])
        for _ in rest:
            done += rest.last.records
    assert sorted(done) == list(range(150))


def test_buckets_by_shape_need_images(corpus_in):
    with pytest.raises(dsconvert.UsageError, match="needs images"):
        dsconvert.Loader(corpus_in("arrow").path, bucket="shape", batch_size=4)
    with pytest.raises(dsconvert.UsageError, match="needs images"):
        dsconvert.BatchSampler([1, 2, 3], bucket="shape", batch_size=4)
    with pytest.raises(dsconvert.UsageError, match="max_pixels does not apply"):
        dsconvert.Loader(corpus_in("arrow").path, max_pixels=4000)


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
