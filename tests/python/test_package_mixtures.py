"""The Python package: several datasets are read as one."""

import multiprocessing
import pickle

import numpy as np
import pytest
from PIL import Image

import dsconvert
from batch_plan import BatchPlan
from test_package_records import keys, plain

pytestmark = pytest.mark.usefixtures("no_ranks")

PAIRS = ["--prompt-field", "prompt", "--completion-field", "completion"]


@pytest.fixture(scope="session")
def text_of(command, tmp_path_factory):
    """Converts lists of texts, one document each, whose tokens are their bytes."""
    out = tmp_path_factory.mktemp("texts")

    def convert(name, texts, *options):
        folder = out / name
        if not folder.exists():
            (out / f"{name}.txt").write_text("\n".join(texts))
            command("text", out / f"{name}.txt", "--documents", "line", "--tokenizer", "bytes", "--out", folder, *options)
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
    loader = dsconvert.Loader(two, batch_size=5, shuffle=False, transform=lambda r: {"n": r["length"]}, rank=0, world_size=1)
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
    with pytest.raises(dsconvert.UsageError, match="has no split 'test'"):
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
