"""The Python package with torch: DataLoader workers, tensors, StatefulDataLoader of torchdata, two gloo processes."""

import json
import logging
import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset
from torchdata.stateful_dataloader import StatefulDataLoader

import dsconvert
from dsconvert import ranks

pytestmark = pytest.mark.sampled("frameworks", one_in=4)


def keys_of(records):
    return [record["key"] for record in records]


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_a_dataset_is_a_map_style_dataset(photos_in, fmt, start):
    dataset = dsconvert.open(photos_in(fmt).path)
    expected = keys_of(dataset)
    sources = [dataset, dataset["train"], Subset(dataset["train"], range(len(expected)))]
    # A worker that is spawned takes seconds to import torch.
    for source in sources if start == "fork" else sources[:1]:
        loader = DataLoader(source, batch_size=4, num_workers=2, multiprocessing_context=start, collate_fn=keys_of)
        assert sum(loader, []) == expected


def test_arrays_of_64_bits_become_tensors(command, tmp_path):
    rows = [json.dumps({"text": str(n), "u": 2**64 - 1 - n, "i": -n}) for n in range(8)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    command(
        "text", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--tokenizer", "bytes", "--keep-fields",
        "u:uint64,i:int64"
    )
    split = dsconvert.open(tmp_path / "out", "train")
    assert split.lengths().dtype.type is np.uint64
    assert torch.from_numpy(split.lengths().copy()).tolist() == [1] * 8
    (batch,) = dsconvert.Loader(split, batch_size=8, fields=["u", "i"], as_torch=True, shuffle=False)
    assert (batch["u"].dtype, batch["i"].dtype) == (torch.uint64, torch.int64)
    assert batch["u"].tolist() == [2**64 - 1 - n for n in range(8)] and batch["i"].tolist() == [-n for n in range(8)]


def test_the_default_collation_works(photos_in):
    dataset = dsconvert.open(photos_in("msgpack").path, fields=["key", "label", "width", "image"])
    batch = next(iter(DataLoader(dataset, batch_size=4)))
    assert batch["label"].dtype == torch.int64 and batch["label"].shape == (4,)
    assert batch["key"] == [record["key"] for record in dataset[:4]] and type(batch["image"][0]) is bytes
    shuffled = DataLoader(dataset, batch_size=None, sampler=RandomSampler(dataset))
    assert sorted(record["key"] for record in shuffled) == sorted(keys_of(dataset))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_batches_are_those_of_a_batch_sampler(text, start):
    sampler = dsconvert.BatchSampler(text, max_tokens=4096, oversize="alone", seed=1)
    expected = [keys_of(text[batch]) for batch in sampler]
    sampler.set_epoch(0)
    loader = DataLoader(
        text, batch_sampler=sampler, num_workers=2, multiprocessing_context=start, collate_fn=keys_of
    )
    assert len(loader) == len(expected)
    assert list(loader) == expected
    assert list(loader) != expected and sampler.epoch == 1


def test_a_tensor_of_ordinals_gives_a_list_whatever_its_size(text):
    for ordinals in ([3], [3, 4], []):
        for index in (ordinals, np.array(ordinals, int), torch.tensor(ordinals, dtype=torch.int64)):
            assert keys_of(text[index]) == [text[ordinal]["key"] for ordinal in ordinals]
    for index in (3, np.int64(3), np.array(3), torch.tensor(3)):
        assert text[index]["key"] == text[[3]][0]["key"]


@pytest.mark.every_push
def test_a_data_loader_may_wrap_a_loader(text):
    loader = dsconvert.Loader(text, batch_size=16, num_threads=2, seed=1, as_torch=True)
    expected = [[batch["input_ids"].clone() for batch in loader] for _ in range(2)]
    loader.set_epoch(0)
    wrapped = DataLoader(loader.as_dataset(), batch_size=None)
    for epoch in range(2):
        assert len(wrapped) == len(expected[epoch])
        given = [batch["input_ids"] for batch in wrapped]
        assert all(map(torch.equal, given, expected[epoch])) and len(given) == len(expected[epoch])
        assert loader.epoch == epoch


@pytest.mark.parametrize(("start", "workers"), [("fork", 1), ("fork", 2), ("spawn", 1)])
def test_workers_are_refused_because_they_would_repeat_every_batch(text, start, workers):
    loader = dsconvert.Loader(text, batch_size=16)
    wrapped = DataLoader(loader.as_dataset(), batch_size=None, num_workers=workers, multiprocessing_context=start)
    with pytest.raises(dsconvert.UsageError, match="workers of a DataLoader.*") as caught:
        list(wrapped)
    assert "num_workers=0" in str(caught.value)


@pytest.mark.every_push
def test_tensors_equal_the_arrays_and_keep_their_memory(text, photos_in):
    for source, options in [(text, {}), (dsconvert.open(photos_in("arrow").path), {"center_crop": 32})]:
        arrays = dsconvert.Loader(source, batch_size=4, seed=1, **options)
        tensors = dsconvert.Loader(source, batch_size=4, seed=1, as_torch=True, **options)
        held = []
        for ours, theirs in zip(tensors, arrays, strict=True):
            assert list(ours) == list(theirs)
            for name, tensor in ours.items():
                assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor.numpy(), theirs[name])
            held.append((ours, {name: tensor.clone() for name, tensor in ours.items()}))
        for tensors_held, copies in held:
            assert all(torch.equal(tensor, copies[name]) for name, tensor in tensors_held.items())
        addresses = [tensor.data_ptr() for tensors_held, _ in held for tensor in tensors_held.values()]
        assert len(set(addresses)) == len(addresses)


def test_tensors_are_not_copies(text):
    loader = dsconvert.Loader(text, batch_size=8, fields=["input_ids"], num_threads=1, prefetch=1, as_torch=True)
    seen = [batch["input_ids"].data_ptr() for batch in loader]
    assert len(set(seen)) < len(seen) / 2, "the memory of the pool is reused"
    ids = next(iter(loader))["input_ids"]
    ids[:] = 3
    assert (ids == 3).all()


@pytest.mark.every_push
def test_an_entry_that_a_batch_does_not_have_names_the_others(text):
    """Also in transforms, and after torch has rebuilt the batch."""
    loader = dsconvert.Loader(text, batch_size=4, as_torch=True, fields=["input_ids", "key"])
    batch = next(iter(loader))
    moved = next(iter(DataLoader(loader.as_dataset(), batch_size=None)))
    mapped = torch.utils._pytree.tree_map(lambda value: value, batch)
    for one in (batch, moved, mapped, pickle.loads(pickle.dumps(batch))):
        assert one.get("label") is None and "label" not in one
        with pytest.raises(KeyError) as caught:
            one["label"]
        assert isinstance(caught.value, dsconvert.UsageError)
        assert str(caught.value).startswith("the batch has no entry 'label'\nit has input_ids, key; ")
    assert torch.equal(batch["input_ids"], mapped["input_ids"])
    loader = dsconvert.Loader(text, batch_size=4, as_torch=True, batch_transform=lambda batch: batch["label"])
    with pytest.raises(KeyError, match="the batch has no entry 'label'"):
        next(iter(loader))


def test_batches_of_tensors_are_arguments_of_compiled_functions(text):
    batch = next(iter(dsconvert.Loader(text, batch_size=4, as_torch=True)))
    compiled = torch.compile(
        lambda batch: {name: value + 1 for name, value in batch.items()}, fullgraph=True, backend="eager"
    )
    assert all(torch.equal(value, batch[name] + 1) for name, value in compiled(batch).items())


def test_pinning_without_a_gpu_does_nothing_and_logs_a_warning(text, caplog):
    with caplog.at_level(logging.WARNING, logger="dsconvert"):
        loader = dsconvert.Loader(text, batch_size=8, pin_memory=True)
    assert isinstance(next(iter(loader))["input_ids"], torch.Tensor)
    if not torch.cuda.is_available():
        assert "pin_memory" in caplog.text


def ids_of(batch):
    return batch["input_ids"].tolist()


@pytest.mark.every_push
def test_a_loader_resumes_in_a_stateful_dataloader(text):
    def make():
        loader = dsconvert.Loader(text, batch_size=16, seed=2, as_torch=True)
        return StatefulDataLoader(loader.as_dataset(), batch_size=None)

    whole = make()
    epochs = [list(map(ids_of, whole)) for _ in range(3)]
    assert epochs[0] != epochs[1]
    for done in (0, 1, 7, len(epochs[0])):
        first = make()
        batches = iter(first)
        seen = [ids_of(next(batches)) for _ in range(done)]
        if done == len(epochs[0]):
            assert next(batches, None) is None
        state = first.state_dict()
        second = make()
        second.load_state_dict(state)
        if done < len(epochs[0]):
            seen += map(ids_of, second)
        assert seen == epochs[0], done
        assert list(map(ids_of, second)) == epochs[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_sampler_resumes_in_a_stateful_dataloader(text, workers):
    def make():
        sampler = dsconvert.BatchSampler(text, batch_size=16, seed=2)
        return StatefulDataLoader(text, batch_sampler=sampler, num_workers=workers, collate_fn=keys_of)

    whole = make()
    epochs = [list(whole) for _ in range(3)]
    for done in (5, len(epochs[0])):
        first = make()
        batches = iter(first)
        seen = [next(batches) for _ in range(done)]
        if done == len(epochs[0]):
            assert next(batches, None) is None
        state = first.state_dict()
        del batches
        second = make()
        second.load_state_dict(state)
        if done < len(epochs[0]):
            seen += second
        assert seen == epochs[0]
        assert [list(second) for _ in range(2)] == epochs[1:], done


def test_a_trainer_can_save_and_load_the_state(text):
    """Lightning's convention: `state_dict` and `load_state_dict` on what the loop iterates over."""
    from torchdata.stateful_dataloader.stateful import Stateful

    for source in (
        dsconvert.Loader(text, batch_size=16), dsconvert.BatchSampler(text, batch_size=16),
        dsconvert.Loader(text, batch_size=16).as_dataset(),
    ):
        assert isinstance(source, Stateful)
        assert source.state_dict() == json.loads(json.dumps(source.state_dict()))


# The program of each rank, at module level because the processes are spawned.

def _train(rank, world_size, rendezvous, path, micro_batches, state, steps, out):
    import torch.distributed

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size
    )
    options = {} if state is not None else {"micro_batches": micro_batches}
    loader = dsconvert.Loader(path, max_tokens=4096, oversize="truncate", seed=4, as_torch=True, **options)
    if state is not None:
        loader.load_state_dict(state)
    seen, per_step = [], loader.micro_batches // world_size
    tokens = torch.zeros(1, dtype=torch.int64)
    for batch in loader:
        seen += loader.last.records
        tokens += batch["lengths"].sum()
        if loader.last.micro_batch + world_size >= loader.micro_batches:  # the last one of a step
            torch.distributed.all_reduce(tokens)
            assert tokens.item() == loader.totals().tokens, "known without communication"
            tokens.zero_()
            if steps is not None and loader.last.step + 1 == steps:
                break
    states = [None] * world_size
    torch.distributed.all_gather_object(states, loader.state_dict())
    assert all(state == states[0] for state in states)
    out.put((rank, per_step, seen, states[0]))
    torch.distributed.destroy_process_group()


def run_ranks(world_size, tmp_path, *args):
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    rendezvous = tmp_path / f"rendezvous-{world_size}-{len(list(tmp_path.iterdir()))}"
    processes = [
        context.Process(target=_train, args=(rank, world_size, rendezvous, *args, out)) for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    results = [out.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return sorted(results)


def test_a_run_of_two_processes_resumes_in_one(text, corpus_in, tmp_path):
    path = corpus_in("arrow").path
    two = run_ranks(2, tmp_path, path, 4, None, 3)
    assert [(rank, per_step) for rank, per_step, *_ in two] == [(0, 2), (1, 2)]
    assert not set(two[0][2]) & set(two[1][2])
    state = two[0][3]
    assert state["plan"]["records"]["step"] == 3
    one = run_ranks(1, tmp_path, path, None, state, None)
    assert one[0][1] == 4
    assert sorted(two[0][2] + two[1][2] + one[0][2]) == list(range(len(text)))


@pytest.mark.every_push
def test_ranks_are_those_of_torch_distributed(text, monkeypatch, caplog):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "_said", set())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with caplog.at_level(logging.WARNING, logger="dsconvert"):
        found = [dsconvert.BatchSampler(text, batch_size=16) for _ in range(2)]
    assert caplog.messages == ["using rank 1 of 2 (from torch.distributed)"]
    assert list(found[0]) == list(dsconvert.BatchSampler(text, batch_size=16, rank=1, world_size=2))
