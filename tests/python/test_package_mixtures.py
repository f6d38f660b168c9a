"""The Python package: several datasets are read as one, or in given shares."""

import functools
import importlib.util
import itertools
import json
import multiprocessing
import operator
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dsconvert
import tier
from batch_plan import BatchPlan, MixturePlan
from test_package_records import keys, plain

pytestmark = pytest.mark.usefixtures("no_ranks")

PADDING = 10**6  # no token has this id

PAIRS = ["--prompt-field", "prompt", "--completion-field", "completion"]


@pytest.fixture(scope="session")
def text_of(command, tmp_path_factory):
    """Converts lists of texts, one document each, whose tokens are their bytes."""
    out = tmp_path_factory.mktemp("texts")

    def convert(name, texts, *options):
        folder = out / name
        if not folder.exists():
            (out / f"{name}.txt").write_text("\n".join(texts))
            command(
                "text", out / f"{name}.txt", "--documents", "line", "--tokenizer", "bytes", "--out", folder, *options
            )
        return folder

    return convert


@pytest.fixture(scope="session")
def two(text_of):
    """Two datasets of texts whose lengths overlap."""
    web = text_of("web", ["w" * (1 + i * 7 % 23) for i in range(40)])
    code = text_of("code", ["c" * (3 + i * 5 % 31) for i in range(25)], "--format", "msgpack")
    return [web, code]


def test_several_datasets_are_read_as_one(corpus_in):
    datasets = [corpus_in("arrow"), corpus_in("parquet"), corpus_in("msgpack")]
    both = dsconvert.open([dataset.path for dataset in datasets], "validation")
    expected = [record for dataset in datasets for record in dataset.records("validation")]
    assert (len(both), both.kind, both.format) == (len(expected), "text", "arrow, parquet, msgpack")
    assert list(map(plain, both)) == expected
    assert list(map(plain, both[:])) == expected
    some = [len(expected) - 1, 0, len(expected) // 2, 0]
    assert list(map(plain, both[some])) == [expected[i] for i in some]
    assert plain(both[-1]) == expected[-1] and both.length(-1) == expected[-1]["length"]
    assert both.lengths().tolist() == [record["length"] for record in expected]
    assert keys(pickle.loads(pickle.dumps(both))) == keys(both)
    assert keys(both.select(["key"])[:3]) == keys(expected[:3])
    assert both.with_transform(len)[0] == len(expected[0])
    assert repr(both).startswith("<dsconvert.Split 'validation' of ")
    with pytest.raises(IndexError):
        both[len(expected)]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(keys, (both.select(["key"]),)) == keys(expected)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"max_tokens": 64, "micro_batches": 2}])
def test_a_loader_of_several_datasets_shuffles_them_together(two, options):
    loader = dsconvert.Loader(two, seed=5, fields=["input_ids", "source", "lengths"], rank=0, world_size=1, **options)
    records = [*dsconvert.open(two[0]), *dsconvert.open(two[1])]
    bucket = "length" if "max_tokens" in options else "none"
    specified = BatchPlan([record["length"] for record in records], seed=5, bucket=bucket, **options)
    for epoch in range(2):
        found = []
        for batch in loader:
            found.append(loader.last.records)
            for row, length, ordinal, source in zip(batch["input_ids"], batch["lengths"], found[-1], batch["source"]):
                assert row[:length].tolist() == records[ordinal]["input_ids"].tolist()
                assert source == (ordinal >= 40)
        assert found == specified.micro_batches(epoch)


def test_packed_rows_hold_documents_of_several_datasets(two):
    loader = dsconvert.Loader(two, seq_len=64, batch_size=2, rank=0, world_size=1)
    tokens = np.concatenate([batch["input_ids"].ravel() for batch in loader])
    counts = [int((tokens == ord(letter)).sum()) for letter in "wc"]
    assert counts == [int(dsconvert.open(path).lengths().sum()) for path in two]


def test_states_belong_to_the_datasets_and_their_order(two):
    loader = dsconvert.Loader(two, batch_size=4, rank=0, world_size=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest = [loader.last.records for _ in batches]
    copy = dsconvert.Loader(list(map(dsconvert.open, two)), batch_size=4, rank=0, world_size=1)
    copy.load_state_dict(state)
    assert [copy.last.records for _ in copy] == rest
    with pytest.raises(dsconvert.UsageError, match="saved for dataset"):
        dsconvert.Loader(two[::-1], batch_size=4, rank=0, world_size=1).load_state_dict(state)


def test_a_transform_gets_the_records_of_all_datasets(two):
    loader = dsconvert.Loader(
        two, batch_size=5, shuffle=False, transform=lambda r: {"n": r["length"]}, rank=0, world_size=1
    )
    found = np.concatenate([batch["n"] for batch in loader])
    assert found.tolist() == dsconvert.open(two).lengths().tolist()


def test_datasets_that_do_not_fit_together_are_refused(two, text_of, corpus_in, photos_in, tmp_path):
    photos, corpus = photos_in("arrow").path, corpus_in("arrow").path
    packed = text_of("packed", ["p" * 30] * 9, "--pack", "16")
    for paths, message in [
        ([two[0], photos], f"{two[0]} holds text, but {photos} holds images"),
        ([two[0], corpus], "have different tokenizers"),
        ([two[0], packed], f"{two[0]} holds single documents, but {packed} holds rows packed for 16 tokens"),
        ([], "there is no dataset"),
    ]:
        for read in (dsconvert.open, lambda paths: dsconvert.Loader(paths, batch_size=4)):
            with pytest.raises(dsconvert.UsageError) as caught:
                read(paths)
            assert message in str(caught.value)
    with pytest.raises(dsconvert.UsageError, match='has no split "test"'):
        dsconvert.open(two, "test")
    with pytest.raises(dsconvert.UsageError, match="merge_classes does not apply"):
        dsconvert.open(two[0], merge_classes=True)
    for use in (lambda split: split.dataset, lambda split: split.describe()):
        with pytest.raises(dsconvert.UsageError, match="several datasets"):
            use(dsconvert.open(two))


def test_classes_are_merged_by_name_on_request(command, tmp_path):
    paths = []
    for name, classes in (("pets", ["cat", "dog"]), ("wild", ["dog", "fox", "wolf"])):
        for label in classes:
            folder = tmp_path / name / label
            folder.mkdir(parents=True)
            for at in range(3):
                pixels = bytes([len(label) * 9 + at]) * 12
                Image.frombytes("RGB", (2, 2), pixels).save(folder / f"{at}.png")
        command("images", tmp_path / name, "--out", tmp_path / f"{name}-out", "--encode", "png")
        paths.append(tmp_path / f"{name}-out")
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.open(paths)
    assert 'class 0 is "cat" in' in str(caught.value) and 'but "dog" in' in str(caught.value)
    merged = dsconvert.open(paths, merge_classes=True)
    assert merged.class_names == ["cat", "dog", "fox", "wolf"]
    parts = [dsconvert.open(path) for path in paths]
    expected = [part.class_names[record["label"]] for part in parts for record in part]
    assert [merged.class_names[record["label"]] for record in merged] == expected
    loader = dsconvert.Loader(merged, batch_size=15, shuffle=False, rank=0, world_size=1)
    (batch,) = loader
    assert [merged.class_names[label] for label in batch["label"]] == expected


def test_tokens_without_marks_are_all_trained_on(command, two, tmp_path):
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"prompt": "question", "completion": "answer"}\n' * 6)
    out = tmp_path / "out"
    command("text", chats, *PAIRS, "--tokenizer", "bytes", "--out", out)
    both = dsconvert.open([two[0], out])
    assert both[0]["assistant_masks"].tolist() == [1] * both.length(0)
    assert both[-1]["assistant_masks"].tolist() == dsconvert.open(out)[-1]["assistant_masks"].tolist()
    assert 0 < sum(both[-1]["assistant_masks"]) < both.length(-1)
    loader = dsconvert.Loader([two[0], out], batch_size=8, labels_for="next_token", rank=0, world_size=1)
    trained = sum(loader.last.trained for _ in loader)
    alone = 0
    for path in (two[0], out):
        single = dsconvert.Loader(path, batch_size=8, labels_for="next_token", rank=0, world_size=1)
        alone += sum(single.last.trained for _ in single)
    assert trained == alone


# Names, texts, and options of the conversion. Lengths overlap, and one dataset marks the tokens to train on.
POOL = {
    "web": ["w" * (1 + i * 7 % 23) for i in range(40)],
    "code": ["c" * (3 + i * 5 % 31) for i in range(25)],
    "books": ["b" * (20 + i * 11 % 21) for i in range(9)],
    "one": ["o" * 12],
    "lines": ["l"] * 30,
    "wiki": ["i" * (1 + i * i % 37) for i in range(70)],
}


@pytest.fixture(scope="session")
def pool(command, text_of, tmp_path_factory):
    """Splits by name."""
    folder = tmp_path_factory.mktemp("pool")
    pairs = [{"prompt": "p" * (1 + i % 5), "completion": "a" * (1 + i * 3 % 11)} for i in range(20)]
    (folder / "chats.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    command("text", folder / "chats.jsonl", *PAIRS, "--tokenizer", "bytes", "--out", folder / "chats")
    paths = {name: text_of(name, texts) for name, texts in POOL.items()} | {"chats": folder / "chats"}
    return {name: dsconvert.open(path) for name, path in paths.items()}


def trained_of(split):
    """Number of tokens to train on, per record."""
    return [
        int(sum(record["assistant_masks"])) if "assistant_masks" in split.fields else record["length"]
        for record in split
    ]


def a_mixture(choose, pool):
    """Options of a mixture, and of a loader."""
    names = choose.sample(list(pool), choose.randrange(1, 5))
    weights = [choose.choice([0.1, 0.2, 0.7, 1, 3, choose.random()]) for _ in names]
    mixture = {"unit": choose.choice(["tokens", "records", "epochs", "trained"])}
    options = {
        "seed": choose.randrange(1000),
        "micro_batches": choose.choice([1, 2, 3]),
        "shuffle": choose.choice([True, True, False]),
    }
    kind = choose.choice(["packed", "records", "flat", "padded", "batches", "batches"])
    if kind == "packed":
        options |= {
            "seq_len": choose.choice([8, 32]),
            "batch_size": choose.choice([1, 3]),
            "packing": choose.choice(["best_fit", "concat"]),
        }
        options["pack_window"] = choose.choice([None, 1, 5])
    elif kind == "records":
        options |= {"batch_size": choose.choice([1, 4])}
    elif kind in ("flat", "padded"):
        options |= {
            "max_tokens_unpadded" if kind == "flat" else "max_tokens": choose.choice([45, 100]), "bucket": "none"
        }
    else:
        size = choose.choice(["batch_size", "max_tokens", "max_tokens_unpadded"])
        options |= {size: choose.choice([2, 5]) if size == "batch_size" else choose.choice([45, 100])}
        options["bucket"] = choose.choice(["length", "windows", "none"])
        options["last"] = choose.choice(["short", "wrap"])
        if options["bucket"] == "none":
            mixture["mix"] = "batch"
    mixture["exhausted"] = choose.choice(["never", "never", "first_exhausted", "all_exhausted"])
    if mixture["exhausted"] == "never":
        mixture[choose.choice(["epoch_tokens", "epoch_steps"])] = choose.choice([7, 20])
    if choose.random() < 0.3:
        later = [choose.choice([0, 1, 2]) for _ in names]
        later[0] = 1
        mixture["schedule"] = [(choose.choice([0, 4]), later)]
    return names, weights, mixture, options


@pytest.mark.parametrize("seed", range(1000 if tier.is_exhaustive("fuzz") else 200))
def test_batches_are_those_of_the_specification(pool, seed):
    names, weights, mixture, options = a_mixture(random.Random(seed), pool)
    given = mixture | {"schedule": [(step, dict(zip(names, later))) for step, later in mixture.get("schedule", ())]}
    datasets = {name: pool[name] for name in names}
    mixed = dsconvert.Mixture(dict(zip(names, weights)), datasets=datasets, **given)
    splits = [pool[name] for name in names]
    lengths = [split.lengths().tolist() for split in splits]
    firsts = [sum(map(len, splits[:at])) for at in range(len(splits))]
    specified = MixturePlan(lengths, weights, trained=list(map(trained_of, splits)), **mixture, **options)
    loader = dsconvert.Loader(mixed, fields=["source"], rank=0, world_size=1, **options)
    for expected in itertools.islice(specified.epochs(), 2):
        for batch, drawn in zip(loader, expected, strict=True):
            sources = [source for source, _ in drawn]
            if "seq_len" in options:
                # As in `cu_seqlens`, the padding of a row is a piece.
                is_full = [sum(end - start for _, start, end in row) == options["seq_len"] for _, row in drawn]
                pieces = [[source] * len(row) + [-1] * (not full) for (source, row), full in zip(drawn, is_full)]
                sources = sum(pieces, [])
                drawn = [(source, record) for source, row in drawn for record, _, _ in row]
            assert loader.last.records == [firsts[source] + record for source, record in drawn]
            assert batch["source"].tolist() == sources
            assert batch["source"].dtype == np.int32
        assert len(loader) == len(expected)
        sources = loader.totals().sources
        assert list(sources) == names
        assert [share.requested for share in sources.values()] == specified.weights
        total = max(1, sum(specified.used))
        assert [share.realized for share in sources.values()] == [used / total for used in specified.used]
        assert [int(share.epochs) for share in sources.values()] == specified.passes


def test_packed_rows_hold_the_tokens_of_their_documents(pool):
    names = ["web", "chats", "code"]
    mixed = dsconvert.Mixture(dict.fromkeys(names, 1), datasets={name: pool[name] for name in names}, epoch_steps=12)
    options = {"seq_len": 32, "batch_size": 3, "seed": 4}
    specified = MixturePlan([pool[name].lengths().tolist() for name in names], [1, 1, 1], epoch_steps=12, **options)
    loader = dsconvert.Loader(mixed, pad_id=PADDING, rank=0, world_size=1, **options)
    (expected,) = itertools.islice(specified.epochs(), 1)
    for batch, drawn in zip(loader, expected, strict=True):
        rows = []
        for source, row in drawn:
            ids = [pool[names[source]][record]["input_ids"].tolist()[start:end] for record, start, end in row]
            rows.append(sum(ids, []))
        assert batch["input_ids"].tolist() == [row + [PADDING] * (32 - len(row)) for row in rows]


def test_every_piece_of_packed_rows_has_its_source(pool):
    """`cu_seqlens` and `source` of the same batch, and the letters that the tokens are."""
    names = ["web", "code", "wiki"]
    mixed = dsconvert.Mixture(dict.fromkeys(names, 1), datasets={name: pool[name] for name in names}, epoch_steps=20)
    loader = dsconvert.Loader(mixed, seq_len=32, batch_size=4, rank=0, world_size=1)
    padded, delivered = 0, dict.fromkeys(names, 0)
    for batch in loader:
        ids, ends = batch["input_ids"].reshape(-1), batch["cu_seqlens"].tolist()
        assert len(batch["source"]) == len(ends) - 1
        for source, start, end in zip(batch["source"].tolist(), ends, ends[1:]):
            letters = set(ids[start:end].tolist())
            assert letters == ({0} if source < 0 else {ord("wci"[source])})
            padded += source < 0
            if source >= 0:
                delivered[names[source]] += end - start
        for name, share in loader.totals().sources.items():
            assert share.epochs == pytest.approx(delivered[name] / int(sum(pool[name].lengths())))
    assert padded > 0


def test_huge_weights_are_weights(pool):
    mixed = two_of(pool, (1e308, 1e308), epoch_steps=40, unit="records")
    loader = dsconvert.Loader(mixed, batch_size=1, rank=0, world_size=1)
    drawn = [int(batch["source"][0]) for batch in loader]
    assert (drawn.count(0), drawn.count(1)) == (20, 20)


def two_of(pool, weights=(0.7, 0.3), **options):
    names = ["wiki", "code"]
    return dsconvert.Mixture(dict(zip(names, weights)), datasets={name: pool[name] for name in names}, **options)


LOADERS = [
    {"seq_len": 32, "batch_size": 2},
    {"batch_size": 3},
    {"max_tokens": 90},
    {"max_tokens_unpadded": 90, "bucket": "none"},
]


@pytest.mark.parametrize("options", LOADERS, ids=str)
def test_shares_are_exact_at_every_step(pool, options):
    loader = dsconvert.Loader(two_of(pool, epoch_steps=60), micro_batches=2, rank=0, world_size=1, **options)
    counts, largest_unit = np.zeros(2), 90 if "max_tokens" in options else 37
    for batch in loader:
        # Each dataset has one letter, whose code is the token.
        counts += [int((batch["input_ids"] == ord(letter)).sum()) for letter in "ic"]
        if loader.last.micro_batch == 1:
            realized = [share.realized for share in loader.totals().sources.values()]
            assert realized == (counts / counts.sum()).tolist()
            assert np.abs(counts - counts.sum() * np.array([0.7, 0.3])).max() <= largest_unit


@pytest.mark.parametrize("options", LOADERS, ids=str)
def test_any_number_of_ranks_continues_a_mixture(pool, options):
    def loaders(world_size):
        mixed = two_of(pool, epoch_tokens=1500, schedule=[(9, {"wiki": 1, "code": 4})])
        return [
            dsconvert.Loader(mixed, micro_batches=6, seed=3, rank=rank, world_size=world_size, **options)
            for rank in range(world_size)
        ]

    def batches(loaders, epochs):
        found = {}
        for loader in loaders:
            for _ in range(epochs):
                for _ in loader:
                    info = loader.last
                    found[info.epoch, info.step, info.micro_batch] = info.records
        return found

    whole = batches(loaders(1), 3)
    for world_size in (2, 3):
        assert batches(loaders(world_size), 3) == whole
    choose = random.Random(str(options))
    for _ in range(4):
        stop, first, second = choose.randrange(1, 7), choose.choice([1, 2, 3]), choose.choice([1, 2, 3])
        started, found = loaders(first), {}
        for loader in started:
            done = 0
            while done < stop * 6 // first:
                for _ in loader:
                    found[loader.last.epoch, loader.last.step, loader.last.micro_batch] = loader.last.records
                    done += 1
                    if done == stop * 6 // first:
                        break
        states = [json.dumps(loader.state_dict()) for loader in started]
        assert len(set(states)) == 1
        resumed = loaders(second)
        for loader in resumed:
            loader.load_state_dict(json.loads(states[0]))
        found |= batches(resumed, 3 - json.loads(states[0])["plan"]["mixture"]["plan"]["epoch"])
        # A state at the end of an epoch is followed by a whole one.
        assert {batch: records for batch, records in found.items() if batch[0] < 3} == whole


def test_a_mixture_is_pickled_copied_and_shown(pool):
    mixed = two_of(pool, epoch_steps=5, unit="records")
    assert repr(mixed) == (
        "<dsconvert.Mixture {'wiki': 0.7, 'code': 0.3}: unit='records', exhausted='never', epoch_steps=5, on_change='refuse'>"
    )
    assert mixed.names == ["wiki", "code"] and len(mixed) == 95 and mixed[70]["key"] == pool["code"][0]["key"]
    loader = dsconvert.Loader(mixed, batch_size=4, rank=0, world_size=1)
    batches = iter(loader)
    next(batches)
    again = pickle.loads(pickle.dumps(loader))
    rest = [loader.last.records for _ in batches]
    assert [again.last.records for _ in again] == rest and len(rest) == 4
    with multiprocessing.get_context("fork").Pool(1) as processes:
        assert processes.apply(number_of_records, (mixed,)) == 95


def number_of_records(mixed):
    return len(list(mixed))


def test_a_transform_and_flash_attention_take_mixtures(pool):
    mixed = two_of(pool, epoch_steps=5)
    flash = dsconvert.Loader(mixed, max_tokens_unpadded=90, packed="flash", rank=0, world_size=1)
    assert "source" not in next(iter(flash))
    loader = dsconvert.Loader(mixed, batch_size=4, transform=lambda r: {"n": r["length"]}, rank=0, world_size=1)
    for batch in loader:
        assert batch["n"].tolist() == [mixed.length(record) for record in loader.last.records]
    few = dsconvert.Loader(mixed.select(["input_ids"]), batch_size=4, fields=["source"], rank=0, world_size=1)
    whole = dsconvert.Loader(mixed, batch_size=4, rank=0, world_size=1)
    assert [few.last.records for _ in few] == [whole.last.records for _ in whole]


def test_images_are_mixed_and_augmented_anew_in_each_pass(photos_in):
    photos = dsconvert.open(photos_in("arrow").path)
    mixed = dsconvert.Mixture(
        {"train": 3, "validation": 1}, datasets={name: photos[name] for name in ("train", "validation")},
        unit="records", epoch_steps=3 * len(photos["train"]),
    )
    loader = dsconvert.Loader(mixed, batch_size=1, random_resized_crop=16, seed=2, rank=0, world_size=1)
    seen = {}
    for batch in loader:
        (record,) = loader.last.records
        seen.setdefault(record, []).append(batch["image"].tobytes())
        assert batch["source"].tolist() == [int(record >= len(photos["train"]))]
    assert max(map(len, seen.values())) > 1
    for images in seen.values():
        assert len(set(images)) == len(images)


def test_states_of_other_mixtures_are_refused(pool, two):
    loader = dsconvert.Loader(two_of(pool, epoch_steps=5), batch_size=2, rank=0, world_size=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for other, message in [
        (two_of(pool, epoch_steps=5, weights=(0.6, 0.4)), "other weights"),
        (two_of(pool, epoch_steps=6), "other weights"),
        (two_of(pool, epoch_steps=5, unit="records"), "options"),
        (dsconvert.Mixture({"wiki": 1}, datasets={"wiki": pool["wiki"]}, epoch_steps=5), "saved for dataset"),
        (pool["wiki"], "the state was saved for a mixture, not for records"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            dsconvert.Loader(other, batch_size=2, rank=0, world_size=1).load_state_dict(state)
    continued = two_of(pool, epoch_steps=5, weights=(0, 1), on_change="continue")
    other = dsconvert.Loader(continued, batch_size=2, rank=0, world_size=1)
    other.load_state_dict(state)
    assert [set(batch["source"].tolist()) for batch in other] == [{1}] * 4
    with pytest.raises(dsconvert.UsageError, match="for a mixture"):
        dsconvert.Loader(two_of(pool, epoch_steps=5), batch_size=2, rank=0, world_size=1).load_state_dict(
            dsconvert.Loader(pool["wiki"], batch_size=2, rank=0, world_size=1).state_dict()
        )


@pytest.mark.parametrize(("arguments", "message"), [
    ({"weights": {"wiki": -1, "code": 1}}, "the weight of \"wiki\" is -1: expected a finite number from 0"),
    ({"weights": {"wiki": float("nan"), "code": 1}}, "the weight of 'wiki' cannot be nan"),
    ({"weights": {"wiki": "much", "code": 1}}, "the weight of 'wiki' cannot be 'much'"),
    ({"weights": {"wiki": 0, "code": 0}}, "all weights from step 0 on are 0"),
    ({"weights": {"wiki": 1, "code": 1, "news": 1}}, "there is a weight for 'news', which is not a dataset"),
    ({"weights": {"wiki": 1}}, "the dataset \"code\" has no weight"),
    ({"weights": [1, 2]}, "weights is list, not a dictionary"),
    ({"unit": "bytes"}, "unit cannot be \"bytes\": expected one of \"tokens\""),
    ({"mix": "rows"}, "mix cannot be \"rows\""),
    ({"exhausted": "sometimes"}, "exhausted cannot be \"sometimes\""),
    ({"epoch_steps": None}, "the length of an epoch is not set"),
    ({"epoch_steps": 0}, "`epoch_steps` is 0, not between 1 and"),
    ({"epoch_steps": -1}, "epoch_steps cannot be -1"),
    ({"epoch_tokens": 5}, "give epoch_tokens or epoch_steps, not both"),
    ({"exhausted": "all_exhausted"}, "`epoch_steps` does not apply"),
    ({"schedule": [(1, {"news": 1})]}, "there is a weight for \"news\""),
    ({"schedule": [(5, {"wiki": 1}), (5, {"code": 1})]}, "not strictly ascending"),
    ({"schedule": [3]}, "schedule has 3, not a pair"),
    ({"on_change": "ignore"}, "on_change cannot be \"ignore\""),
])  # fmt: skip
def test_bad_mixtures_are_refused(pool, arguments, message):
    datasets = {name: pool[name] for name in ("wiki", "code")}
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.Mixture(**{"weights": {"wiki": 1, "code": 1}, "datasets": datasets, "epoch_steps": 5} | arguments)
    assert message in str(caught.value)


def test_a_mixture_that_does_not_fit_a_loader_is_refused(pool, corpus_in):
    mixed = two_of(pool, epoch_steps=5)
    for options, message in [
        ({"max_tokens": 10}, "the dataset \"wiki\": "),
        ({"max_tokens_unpadded": 10, "bucket": "none"}, "the dataset \"wiki\": "),
    ]:
        with pytest.raises(dsconvert.UsageError) as caught:
            dsconvert.Loader(mixed, rank=0, world_size=1, **options)
        assert message in str(caught.value)
    with pytest.raises(dsconvert.UsageError, match="a BatchSampler does not mix datasets"):
        dsconvert.BatchSampler(mixed, batch_size=4, rank=0, world_size=1)
    with pytest.raises(dsconvert.UsageError, match="have different tokenizers"):
        dsconvert.Mixture({"a": 1, "b": 1}, datasets={"a": pool["wiki"], "b": corpus_in("arrow").path}, epoch_steps=5)


def test_a_dataset_that_is_replaced_is_noticed(command, text_of, tmp_path):
    text_of("old", ["o" * 9] * 20)
    shutil.copytree(text_of("old", []), tmp_path / "data")
    loader = dsconvert.Loader(
        dsconvert.Mixture({tmp_path / "data": 1}, epoch_steps=9), batch_size=2, rank=0, world_size=1
    )
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(text_of("new", ["n" * 9] * 20), tmp_path / "data")
    with pytest.raises(dsconvert.UsageError, match="was replaced"):
        pickle.loads(pickle.dumps(loader)).epoch
    other = dsconvert.Loader(
        dsconvert.Mixture({tmp_path / "data": 1}, epoch_steps=9), batch_size=2, rank=0, world_size=1
    )
    with pytest.raises(dsconvert.UsageError, match="saved for dataset"):
        other.load_state_dict(state)


def build_blending_indices(weights, size):
    """`build_blending_indices` of Megatron-LM: the original if megatron-core is installed, else its few lines again."""
    package = importlib.util.find_spec("megatron")
    folders = package.submodule_search_locations if package else []
    if found := [path for folder in folders for path in Path(folder).glob("core/datasets/helpers_cpp*.so")]:
        # Without the rest of the package, whose import takes seconds.
        spec = importlib.util.spec_from_file_location("helpers_cpp", found[0])
        original = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(original)
        index, samples = np.zeros(size, np.int16), np.zeros(size, np.int64)
        original.build_blending_indices(index, samples, np.array(weights), len(weights), size, False)
        return index.tolist()
    current, found = [0] * len(weights), []
    for at in range(size):
        errors = [weight * max(float(at), 1.0) - float(samples) for weight, samples in zip(weights, current)]
        found.append(errors.index(max(errors)))
        current[found[-1]] += 1
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("options", [{"batch_size": 1}, {"seq_len": 16, "batch_size": 1}], ids=str)
def test_records_are_in_the_order_of_megatron(pool, seed, options):
    choose = random.Random(seed)
    names = choose.sample(list(pool), choose.randrange(1, 6))
    weights = [choose.choice([1, 2, 0.3, choose.random()]) for _ in names]
    mixed = dsconvert.Mixture(
        dict(zip(names, weights)), datasets={name: pool[name] for name in names}, unit="records", epoch_steps=300
    )
    loader = dsconvert.Loader(mixed, fields=["source"], rank=0, world_size=1, **options)
    found = [int(batch["source"][0]) for batch in loader]
    total = functools.reduce(operator.add, map(float, weights))  # newer versions of Python correct the result of sum()
    assert found == build_blending_indices([weight / total for weight in weights], 300)
