"""The Python package: transforms of the user on the threads of a `Loader`."""

import itertools
import os
import pickle
import threading

import numpy as np
import pytest
import torch

import dsconvert


@pytest.fixture
def pictures(photos_in):
    return dsconvert.open(photos_in("parquet").path, "train")


def note(batch):
    """Adds the records, the thread, and a random number that depends only on the position of the batch."""
    info = dsconvert.batch_info()
    random = np.random.default_rng([info.epoch, info.step, info.micro_batch])
    return {**batch, "records": info.records, "noise": random.random(), "thread": threading.current_thread().name}


def number(record):
    return {"key": record["key"], "length": record["length"], "ids": record["input_ids"][:2].astype(np.int64)}


def shrink(record):
    """The upper left corner, and the mean of all pixels."""
    image = record["image"]
    assert image.dtype == np.uint8 and image.ndim == 3
    return {"corner": image[:8, :8].copy(), "mean": float(image.mean()), "size": image.shape, "key": record["key"]}


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_batch_transform_gets_every_batch_once_in_order(text, threads):
    plain = dsconvert.Loader(text, batch_size=16, seed=4)
    loader = dsconvert.Loader(text, batch_size=16, seed=4, num_threads=threads, batch_transform=note)
    names = set()
    for epoch in range(2):
        for ours, theirs in zip(loader, plain, strict=True):
            assert np.array_equal(ours["input_ids"], theirs["input_ids"])
            assert ours["records"] == loader.last.records == plain.last.records and loader.last.epoch == epoch
            names.add(ours["thread"])
    assert (threading.current_thread().name in names) == (threads == 0)
    assert dsconvert.batch_info() is None


def test_random_choices_of_a_transform_are_the_same_after_a_resume(text):
    def make(threads):
        return dsconvert.Loader(text, batch_size=16, seed=4, num_threads=threads, batch_transform=note)

    loader, expected = make(3), [batch["noise"] for batch in make(0)]
    batches = iter(loader)
    seen = [next(batches)["noise"] for _ in range(5)]
    state = loader.state_dict()
    resumed = make(1)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert seen + [batch["noise"] for batch in resumed] == expected
    assert len(set(expected)) == len(expected)


@pytest.mark.parametrize("threads", [0, 2])
def test_records_are_transformed_and_stacked(pictures, threads):
    loader = dsconvert.Loader(pictures, batch_size=5, seed=1, transform=shrink, num_threads=threads)
    whole = {record["key"]: record["image"] for record in dsconvert.open(pictures.path, "train", decode=True)}
    seen = []
    for batch in loader:
        assert list(batch) == ["corner", "mean", "size", "key"]
        assert batch["corner"].shape == (loader.last.rows, 8, 8, 3) and batch["mean"].dtype == np.float64
        for row, key in enumerate(batch["key"]):
            assert np.array_equal(batch["corner"][row], whole[key][:8, :8]) and batch["size"][row] == whole[key].shape
        seen += batch["key"]
    assert sorted(seen) == sorted(whole)


@pytest.mark.parametrize(("values", "dtype"), [
    ([1, -2, 3, 4], np.int64), ([2**64 - 1, 0, 2**63, 1], np.uint64), ([2**63 - 1, -(2**63), 0, 0], np.int64),
    ([2**63, -1, 0, 0], None), ([2**70, 0, 0, 0], None), ([1.5, 2.0, 3.0, 4.0], np.float64), ([True, False] * 2, np.bool_),
    ([np.str_("a")] * 4, None), ([np.datetime64("2024-02-29")] * 4, None),
])
@pytest.mark.parametrize("as_torch", [False, True])
def test_scalars_become_arrays_without_loss(text, values, dtype, as_torch):
    numbers = itertools.cycle(values)
    loader = dsconvert.Loader(
        text, batch_size=4, num_threads=0, transform=lambda record: {"x": next(numbers)}, as_torch=as_torch
    )
    batch = next(iter(loader))["x"]
    assert list(map(str, batch.numpy() if isinstance(batch, torch.Tensor) else batch)) == list(map(str, values))
    if dtype is not None:
        assert np.asarray(batch).dtype == dtype and isinstance(batch, torch.Tensor) == as_torch
    elif as_torch:
        assert isinstance(batch, list)


@pytest.mark.parametrize("decode", [False, np.False_])
def test_a_transform_gets_encoded_images_without_decode(pictures, decode):
    loader = dsconvert.Loader(pictures, batch_size=4, decode=decode, num_threads=0, transform=lambda record: {
        "type": type(record["image"])
    })
    assert next(iter(loader))["type"] == [bytes] * 4


@pytest.mark.parametrize("budget", ["max_tokens", "max_tokens_unpadded"])
@pytest.mark.parametrize("number", [np.int32, np.int64, torch.tensor])
def test_a_budget_of_another_type_gives_the_same_batches(text, budget, number):
    def lengths(kind):
        loader = dsconvert.Loader(
            text, **{budget: kind(300)}, pad_to_multiple_of=kind(4) if budget == "max_tokens" else None,
            bucket="none", oversize="truncate", num_threads=0, transform=lambda record: {"n": record["length"]},
        )
        return [(type(batch["n"]), getattr(batch["n"], "dtype", None), list(batch["n"])) for batch in loader]

    plain = lengths(int)
    assert any(300 in values for _, _, values in plain) and lengths(number) == plain


def test_each_thread_keeps_its_local_data(text):
    local, made = threading.local(), []

    def transform(batch):
        if not hasattr(local, "cache"):
            local.cache = threading.get_ident()
            made.append(local.cache)
        assert local.cache == threading.get_ident()
        return batch

    loader = dsconvert.Loader(text, batch_size=8, num_threads=2, batch_transform=transform)
    assert len(list(loader)) > 20
    assert len(made) <= 2, "not once for each batch"


def test_values_of_several_shapes_are_lists_and_tensors_are_stacked(text):
    loader = dsconvert.Loader(text, max_tokens=4096, oversize="truncate", transform=lambda record: {
        "ids": record["input_ids"], "first": torch.tensor(record["length"]), "pair": np.zeros(2, np.float32),
    }, as_torch=True)
    batch = next(iter(loader))
    assert isinstance(batch["ids"], list) and batch["ids"][0].ndim == 1
    assert batch["first"].dtype == torch.int64 and batch["first"].shape == (loader.last.rows,)
    assert batch["pair"].dtype == torch.float32 and batch["pair"].shape == (loader.last.rows, 2)
    assert batch["first"].tolist() == [min(text.length(record), 4096) for record in loader.last.records]


@pytest.mark.parametrize("options", [{"max_tokens": 1001, "pad_to_multiple_of": 8}, {"max_tokens_unpadded": 1001}])
@pytest.mark.parametrize("fields", [None, ["input_ids"], ["length", "key"]])
def test_a_transform_gets_truncated_records(text, options, fields):
    options = {"oversize": "truncate", "seed": 2, "num_threads": 2, **options}
    loader = dsconvert.Loader(text, **options, transform=lambda record: {"record": record}, fields=fields)
    plain = dsconvert.Loader(text, **options, fields=["lengths"])
    longest = 0
    for batch, expected in zip(loader, plain, strict=True):
        for record, length, ordinal in zip(batch["record"], expected["lengths"].tolist(), loader.last.records, strict=True):
            stored = text[ordinal]
            assert fields is None or set(record) == set(fields)
            assert record.get("length", length) == length
            assert "input_ids" not in record or np.array_equal(record["input_ids"], stored["input_ids"][:length])
            longest = max(longest, length)
    assert longest == (1000 if "max_tokens" in options else 1001) < text.lengths().max()


def test_a_transform_gets_truncated_rows_that_are_packed_on_disk(command, tmp_path):
    command(
        "text", "fixtures/corpus", "--tokenizer", "fixtures/tokenizers/bpe.json", "--pack", 64, "--out",
        tmp_path / "packed"
    )
    loader = dsconvert.Loader(
        tmp_path / "packed", max_tokens_unpadded=40, oversize="truncate", transform=lambda record: {"record": record}
    )
    for batch in loader:
        for record, ordinal in zip(batch["record"], loader.last.records, strict=True):
            stored = loader.split[ordinal]["cu_seqlens"].tolist()
            ends, tokens = record["cu_seqlens"].tolist(), min(40, stored[-1])
            assert len(record["input_ids"]) == record["length"] == ends[-1] == tokens
            assert ends == [end for end in stored if end < tokens] + [tokens]
            starts = loader.split[ordinal]["piece_starts"].tolist()
            assert record["piece_starts"].tolist() == starts[: len(ends) - 1]


def test_fields_and_both_transforms_can_be_combined(text):
    loader = dsconvert.Loader(
        text, batch_size=4, fields=["key"], transform=lambda record: {
            "name": record["key"].upper(), "fields": list(record)
        },
        batch_transform=lambda batch: (batch["name"], batch["fields"]),
    )
    names, fields = next(iter(loader))
    assert names == [text[record]["key"].upper() for record in loader.last.records] and fields[0] == ["key"]


class Picky:
    """A transform that fails on the batches of one step."""

    def __init__(self, step):
        self.step = step

    def __call__(self, batch):
        if dsconvert.batch_info().step == self.step:
            raise KeyError("a bug of the user")
        return batch


@pytest.mark.parametrize("threads", [0, 2])
def test_an_exception_is_raised_in_place_of_its_batch(text, threads):
    loader = dsconvert.Loader(text, batch_size=16, batch_transform=Picky(2), num_threads=threads)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(KeyError, match="a bug of the user") as caught:
        next(batches)
    assert any("epoch 0, step 2, micro-batch 0" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].name == "__call__", "the traceback leads to the function"
    next(batches)
    assert loader.last.step == 3


@pytest.mark.parametrize("wrong,error,message", [
    (lambda batch: None, dsconvert.UsageError, "returned None"),
    (lambda batch: next(iter(())), RuntimeError, "StopIteration"),
])
def test_a_batch_transform_that_ends_the_epoch_is_an_error(text, wrong, error, message):
    with pytest.raises(error, match=message):
        list(dsconvert.Loader(text, batch_size=16, batch_transform=wrong))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_transform_of_a_record_that_raises_stop_iteration_is_an_error(text, threads):
    """It once ended the list of records, so that the batch lacked those after it."""
    loader = dsconvert.Loader(
        text, batch_size=16, num_threads=threads,
        transform=lambda record: next(iter(())) if record["key"] == text[40]["key"] else {"key": record["key"]},
    )
    with pytest.raises(RuntimeError, match="a transform of the Loader raised StopIteration"):
        list(loader)


def test_a_transform_that_returns_no_dictionary_is_an_error(text):
    with pytest.raises(dsconvert.UsageError, match="transform returned int, not a dictionary"):
        next(iter(dsconvert.Loader(text, batch_size=4, transform=len)))


def test_threads_overlap_while_a_transform_waits(text):
    """A transform that releases the GIL, as numpy and torch do in large operations."""

    calls, met = itertools.count(), threading.Barrier(4)

    def wait(batch):
        if next(calls) < 4:
            met.wait(60)  # fails unless four threads are here at once
        return batch

    assert len(list(dsconvert.Loader(text, batch_size=32, num_threads=4, batch_transform=wait))) == 16


def test_pickled_and_forked_loaders_transform_the_same_batches(text):
    def make():
        return dsconvert.Loader(text, batch_size=16, seed=4, num_threads=2, batch_transform=note)

    plain, loader = make(), make()
    first = [batch["noise"] for batch in plain]
    assert [batch["noise"] for batch in pickle.loads(pickle.dumps(loader))] == first
    next(iter(loader))
    assert [batch["noise"] for batch in pickle.loads(pickle.dumps(loader))] == first[1:]
    child = os.fork()
    if child == 0:
        os._exit(0 if [batch["noise"] for batch in loader] == first[1:] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [0, 2])
def test_another_loader_in_a_transform_leaves_the_batch_info(text, threads):
    inner = dsconvert.Loader(text, batch_size=32, num_threads=0, batch_transform=note)
    lock = threading.Lock()

    def both(batch):
        info = dsconvert.batch_info()
        with lock:
            other = next(iter(inner))["records"]
        assert dsconvert.batch_info() is info and info.records != other
        return batch

    loader = dsconvert.Loader(text, batch_size=64, num_threads=threads, batch_transform=both)
    assert sum(1 for _ in loader) == len(loader)
    assert dsconvert.batch_info() is None


@pytest.mark.parametrize("failed", [{0}, {3}, {2, 3, 4}])
@pytest.mark.parametrize("options", [{"seq_len": 128}, {"seq_len": 128, "labels_for": "huggingface"}, {}])
def test_the_totals_after_a_failed_batch_are_those_of_the_next_step(text, options, failed):
    def fail(batch):
        if dsconvert.batch_info().step in failed:
            raise ValueError
        return batch

    options = {"batch_size": 4, "seed": 1, "num_threads": 1, "micro_batches": 2, **options}
    plain = dsconvert.Loader(text, **options)
    expected = {plain.last.step: plain.totals() for _ in plain}
    loader = dsconvert.Loader(text, **options, batch_transform=fail)
    batches, found = iter(loader), {}
    for _ in range(len(loader)):
        try:
            next(batches)
            found[loader.last.step] = loader.totals()
        except ValueError:
            pass
    assert found == {step: totals for step, totals in expected.items() if step not in failed}
