"""The Python package: records equal those that third-party libraries read, in every process."""

import copy
import io
import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dsconvert


def plain(record):
    """A record with lists instead of arrays."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in record.items()}


def keys(records):
    return [record["key"] for record in records]


def test_every_record_equals_that_of_other_libraries(anything):
    dataset = dsconvert.open(anything.path)
    assert dataset.splits == anything.splits
    assert (dataset.kind, dataset.format) == (anything.kind, anything.format)
    assert dataset.fingerprint == anything.manifest["fingerprint"]
    assert dataset.class_names == anything.manifest["schema"].get("class_names", [])
    for name in anything.splits:
        split, expected = dataset[name], anything.records(name)
        assert len(split) == len(expected)
        assert list(map(plain, split)) == expected
        assert list(map(plain, split[:])) == expected
        assert [plain(split[i]) for i in range(len(split))] == expected
        lengths = [r["width"] * r["height"] if "width" in r else r["length"] for r in expected]
        assert split.lengths().tolist() == lengths
        assert split.length(-1) == lengths[-1]


def test_splits_are_indexed_like_lists(anything):
    split = dsconvert.open(anything.path, "train")
    expected = keys(anything.records("train"))
    for index in (0, 3, -1, -len(expected), np.int64(2), len(expected) - 1):
        assert split[index]["key"] == expected[index]
    for part in (slice(2, 9, 3), slice(None, None, -1), slice(-3, None), slice(5, 5)):
        assert keys(split[part]) == expected[part]
    for several in ([4, 0, 4, -1], np.array([3, 1]), (2,), [], range(2, 5)):
        assert keys(split[several]) == [expected[i] for i in several]
    mask = np.arange(len(expected)) % 3 == 0
    assert keys(split[mask]) == [key for key, wanted in zip(expected, mask) if wanted]
    assert keys(split.__getitems__([1, 0])) == [expected[1], expected[0]]
    for index in (len(expected), -len(expected) - 1, 10**30, -(10**30)):
        with pytest.raises(IndexError) as caught:
            split[index]
        assert isinstance(caught.value, dsconvert.OutOfRangeError) and caught.value.kind == "out-of-range"
    for ordinals in ([2**64], [0, 2**63], (-(2**70), 0)):
        with pytest.raises(dsconvert.OutOfRangeError):
            split[ordinals]
    with pytest.raises(dsconvert.OutOfRangeError):
        split[[0, len(expected)]]
    for index in ("train", 1.5, [0.5], None, [[0]]):
        with pytest.raises(TypeError):
            split[index]
    with pytest.raises(dsconvert.UsageError):
        split[mask[:-1]]


def test_the_default_split_is_train_or_the_only_one(corpus_in, command, tmp_path):
    dataset = dsconvert.open(corpus_in("arrow").path)
    train = dsconvert.open(corpus_in("arrow").path, "train")
    assert len(dataset) == len(train) and dataset[3]["key"] == train[3]["key"]
    assert keys(dataset) == keys(train)
    assert train.dataset.splits == dataset.splits
    text = ["text", "fixtures/corpus", "--tokenizer", "bytes"]
    command(*text, "--split", "test=1", "--out", tmp_path / "only")
    assert dsconvert.open(tmp_path / "only").default.name == "test"
    command(*text, "--split", "a=0.5,b=0.5", "--out", tmp_path / "two")
    two = dsconvert.open(tmp_path / "two")
    with pytest.raises(dsconvert.UsageError, match="no split 'train'") as caught:
        len(two)
    assert "a, b" in caught.value.remedy
    assert len(two["a"]) > 0


def test_token_ids_are_views_of_the_file_or_of_kept_rows(corpus_in):
    for fmt in ("arrow", "parquet"):
        split = dsconvert.open(corpus_in(fmt).path, "train")
        first, again = split[3]["input_ids"], split[3]["input_ids"]
        assert not first.flags.writeable and not first.flags.owndata
        assert np.array_equal(first, again)
        assert np.shares_memory(first, again)
        ids = first.tolist()
        del split, again
        assert first.tolist() == ids, "it keeps the file open, or the rows"
        with pytest.raises(ValueError):
            first[0] = 1


def test_ids_in_streams_are_aligned(corpus_in):
    for fmt in ("msgpack", "protobuf"):
        for record in dsconvert.open(corpus_in(fmt).path):
            assert record["input_ids"].flags.aligned


def test_fields_are_selected_and_transforms_applied(photos_in):
    dataset = dsconvert.open(photos_in("arrow").path, fields=["label", "key"])
    assert list(dataset[0]) == ["label", "key"]
    assert dataset["train"].fields == {"label": "label", "key": "string"}
    assert list(dataset["train"].select(["key"])[0]) == ["key"]
    with pytest.raises(dsconvert.UsageError, match="nothing") as caught:
        dsconvert.open(photos_in("arrow").path, "train", fields=["nothing"])
    assert "image" in caught.value.remedy
    upper = dsconvert.open(photos_in("arrow").path, "train", transform=lambda record: record["key"].upper())
    assert upper[0] == dataset[0]["key"].upper() == upper[:1][0] == next(iter(upper))
    assert upper.with_transform(None)[0]["key"] == dataset[0]["key"]


def test_decoded_images_match_those_of_pillow(photos):
    path = photos.path
    encoded, decoded = dsconvert.open(path), dsconvert.open(path, decode=True)
    for before, after in zip(encoded, decoded, strict=True):
        theirs = np.asarray(Image.open(io.BytesIO(before["image"])).convert("RGB"), int)
        ours = after["image"]
        assert ours.dtype == np.uint8 and ours.shape == (before["height"], before["width"], 3)
        assert np.abs(ours - theirs).mean() < 2, before["key"]
        assert after["label"] == before["label"]
    with pytest.raises(dsconvert.UsageError, match="decode does not apply: fields has no image"):
        dsconvert.open(path, "train", decode=True, fields=["label"])
    only = dsconvert.open(path, "train", decode=True, fields=["image"])
    assert list(only[0]) == ["image"] and only.fields == {"image": "image"}
    assert np.array_equal(only[0]["image"], decoded[0]["image"])


def test_a_pickled_dataset_opens_again(anything):
    dataset = dsconvert.open(anything.path)
    for thing in (dataset, dataset["train"], dataset["train"].select(["key"]), dataset["validation"]):
        again = pickle.loads(pickle.dumps(thing))
        assert keys(again) == keys(thing) and repr(again) == repr(thing)
    assert copy.copy(dataset)[0]["key"] == dataset[0]["key"]


def test_unpickling_refuses_another_dataset(command, tmp_path):
    command("text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", tmp_path / "out")
    pickled = pickle.dumps(dsconvert.open(tmp_path / "out", "train"))
    shutil.rmtree(tmp_path / "out")
    command("text", "fixtures/corpus", "--tokenizer", "bytes", "--out", tmp_path / "out")
    with pytest.raises(dsconvert.UsageError, match="was replaced after it was opened"):
        pickle.loads(pickled)[0]


def test_a_forked_child_reads_the_same(anything):
    dataset = dsconvert.open(anything.path)
    expected = keys(dataset)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(keys(dataset[:]) + keys(dataset)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        assert json.load(stream) == expected * 2
    assert os.waitpid(child, 0)[1] == 0
    assert keys(dataset) == expected


def _keys_in_child(dataset):
    return keys(dataset)


def test_a_spawned_child_reads_the_same(corpus_in):
    dataset = dsconvert.open(corpus_in("msgpack").path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_keys_in_child, (dataset,)) == keys(dataset)


@pytest.mark.parametrize("fields", [None, ["origin"]])
@pytest.mark.parametrize("mmap", [True, False])
def test_an_altered_shard_is_an_error_with_its_place(corpus_in, tmp_path, mmap, fields):
    shutil.copytree(corpus_in("msgpack").path, tmp_path / "altered")
    shard = sorted((tmp_path / "altered/train").iterdir())[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    split = dsconvert.open(tmp_path / "altered", "train", mmap=mmap, fields=fields)
    caught, whole, records = [], 0, iter(split)
    while True:
        try:
            next(records)
            whole += 1
        except StopIteration:
            break
        except dsconvert.CorruptError as error:
            caught.append(error)
    assert whole + len(caught) == len(split) and len(caught) >= 1, "the others are still read"
    error = caught[0]
    assert error.kind == "corrupt" and error.place.shard == shard.name and error.place.row is not None
    assert shard.name in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is dsconvert.CorruptError
    assert (str(again), again.kind, again.place, again.remedy) == (str(error), error.kind, error.place, error.remedy)


def test_lengths_of_an_altered_index_are_an_error(corpus_in, tmp_path):
    shutil.copytree(corpus_in("msgpack").path, tmp_path / "altered")
    index = tmp_path / "altered/index/train.records-0000.arrow"
    right = dsconvert.open(tmp_path / "altered", "train").lengths()
    data = bytearray(index.read_bytes())
    at = data.index(right.tobytes()) + 8 * (len(right) // 2)
    data[at] ^= 1
    index.write_bytes(data)
    split = dsconvert.open(tmp_path / "altered", "train")
    with pytest.raises(dsconvert.CorruptError, match="SHA-256"):
        split.lengths()
    with pytest.raises(dsconvert.CorruptError, match="SHA-256"):
        split.length(len(right) // 2)
    unchecked = dsconvert.open(tmp_path / "altered", "train", verify_checksums=False)
    assert (unchecked.lengths() != right).sum() == 1


def test_a_transform_that_raises_stop_iteration_does_not_end_the_records(corpus_in):
    train = dsconvert.open(corpus_in("arrow").path, "train", fields=["key"])
    fifth = train[4]["key"]

    def change(record):
        return next(iter([])) if record["key"] == fifth else record

    changed = train.with_transform(change)
    records, seen = iter(changed), 0
    with pytest.raises(RuntimeError, match="the transform of the dataset raised StopIteration"):
        for _ in records:
            seen += 1
    assert seen == 4 and sum(1 for _ in records) == len(train) - 5
    for index in (4, slice(3, 6)):
        with pytest.raises(RuntimeError, match="StopIteration"):
            changed[index]


def test_each_failure_has_its_exception_class(corpus_in, tmp_path):
    with pytest.raises(OSError) as caught:
        dsconvert.open(tmp_path / "nothing")
    error = caught.value
    assert isinstance(error, dsconvert.IoError) and error.errno == 2 and error.kind == "io"
    assert isinstance(error, dsconvert.NotFoundError) and isinstance(error, FileNotFoundError)
    assert error.place.path == str(tmp_path / "nothing")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.errno == 2 and again.message == error.message
    assert (str(again), again.kind, again.place, again.remedy) == (str(error), "io", error.place, error.remedy)
    with pytest.raises(dsconvert.IoError) as caught:
        dsconvert.open(tmp_path)
    assert pickle.loads(pickle.dumps(caught.value)).errno is None is caught.value.errno
    for file in ("manifest.json", "train/" + next((corpus_in("arrow").path / "train").iterdir()).name):
        with pytest.raises(dsconvert.IoError, match="this is a file, not the directory of a dataset") as caught:
            dsconvert.open(corpus_in("arrow").path / file)
        assert "manifest.json" in caught.value.remedy
    with pytest.raises(ValueError) as caught:
        dsconvert.open(corpus_in("arrow").path, "tset")
    assert isinstance(caught.value, dsconvert.UsageError) and "train" in caught.value.remedy
    assert str(caught.value) == f"{caught.value.message}\n{caught.value.remedy}"
    newer = tmp_path / "newer"
    shutil.copytree(corpus_in("arrow").path, newer)
    manifest = (newer / "manifest.json").read_bytes()
    (newer / "manifest.json").write_text(json.dumps({**json.loads(manifest), "manifest_version": 999}))
    with pytest.raises(dsconvert.UnsupportedError, match="999"):
        dsconvert.open(newer)
    (newer / "manifest.json").write_text("{")
    with pytest.raises(dsconvert.CorruptError):
        dsconvert.open(newer)
    (newer / "manifest.json").write_bytes(manifest.replace(b'"train"', b'"trial"'))
    with pytest.raises(dsconvert.CorruptError, match="digest"):
        dsconvert.open(newer)
    (newer / "manifest.json").write_bytes(manifest)
    next((newer / "train").iterdir()).unlink()
    dataset = dsconvert.open(newer)
    with pytest.raises(dsconvert.Error) as caught:
        list(dataset)
    assert isinstance(caught.value, dsconvert.IoError) and caught.value.place.path.startswith(str(newer / "train"))
    assert "restore the file" in caught.value.remedy
    for error_class in (dsconvert.UsageError, dsconvert.IoError, dsconvert.CorruptError, dsconvert.OutOfRangeError):
        assert issubclass(error_class, dsconvert.Error)


def test_a_dataset_describes_itself(binary, anything):
    described = dsconvert.open(anything.path).describe()
    assert described["splits"]["train"]["records"] == len(anything.records("train"))
    printed = subprocess.run([binary, "inspect", anything.path, "--json"], check=True, capture_output=True).stdout
    assert described == json.loads(printed) and described["object"] == "dataset"


def test_a_description_warns_of_labels_that_cannot_be_read(photos_in, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(photos_in("arrow").path, damaged)
    path = damaged / "manifest.json"
    exact = dsconvert.open(damaged).describe()["splits"]["train"]
    # A manifest of version 2 has no numbers of records per class, so the labels are read.
    manifest = json.loads(path.read_bytes())
    for split in manifest["splits"].values():
        del split["class_counts"]
    manifest = {**manifest, "manifest_version": 2, "digest": "sha256:" + "0" * 64}
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(text.replace("0" * 64, digest, 1))
    assert dsconvert.open(damaged).describe()["splits"]["train"] == exact
    shards = sorted(damaged.glob("train/train-*"))
    shards[0].unlink()
    with pytest.warns(UserWarning, match="labels of train cannot be read") as caught:
        described = dsconvert.open(damaged).describe()
    assert Path(caught[0].filename) == Path(__file__)
    train = described["splits"]["train"]
    assert train["labels_read"] < train["records"]
