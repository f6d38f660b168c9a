"""The `datasets` package opens arrow and parquet shards as images with class names, and as lists of ids."""

import io
import shutil

import datasets
import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def loaded(columnar, tmp_path):
    files = {split: [str(shard) for shard in columnar.shards(split)] for split in columnar.splits}
    return columnar, datasets.load_dataset(columnar.format, data_files=files, cache_dir=str(tmp_path))


def test_every_record_arrives(loaded):
    ours, theirs = loaded
    assert {split: len(theirs[split]) for split in theirs} == {
        split: ours.manifest["splits"][split]["records"] for split in ours.splits
    }
    for split in ours.splits:
        assert theirs[split]["key"][:] == [record["key"] for record in ours.records(split)]


@pytest.mark.parametrize("kind", ["images"], indirect=True)
def test_images_arrive_as_pictures_with_class_names(loaded):
    ours, theirs = loaded
    for split in ours.splits:
        features = theirs[split].features
        assert isinstance(features["image"], datasets.Image)
        assert isinstance(features["label"], datasets.ClassLabel)
        assert features["label"].names == ["dunes", "flowers", "forest", "night", "signs"]
        for row, record in zip(theirs[split], ours.records(split), strict=True):
            assert isinstance(row["image"], Image.Image)
            assert row["image"].size == (row["width"], row["height"])
            assert np.array_equal(row["image"], Image.open(io.BytesIO(record["image"])))
            assert features["label"].int2str(row["label"]) == record["origin"].split("/")[1]


@pytest.mark.parametrize("kind", ["text"], indirect=True)
def test_token_ids_arrive_as_lists_of_ints(loaded):
    ours, theirs = loaded
    for split in ours.splits:
        for row, record in zip(theirs[split], ours.records(split), strict=True):
            assert row["input_ids"] == record["input_ids"]
            assert all(type(i) is int for i in row["input_ids"][:3])
        numbers = theirs[split].with_format("numpy")[0]["input_ids"]
        assert numbers.dtype == np.int64 and numbers.tolist() == ours.records(split)[0]["input_ids"]


def test_a_directory_with_a_card_opens_as_it_is(dsconvert, columnar, tmp_path):
    directory = tmp_path / "dataset"
    shutil.copytree(columnar.path, directory)
    dsconvert("inspect", directory, "--card")
    theirs = datasets.load_dataset(str(directory), cache_dir=str(tmp_path / "cache"))
    assert {split: theirs[split].num_rows for split in theirs} == {
        split: columnar.manifest["splits"][split]["records"] for split in columnar.splits
    }
    files = {split: [str(shard) for shard in columnar.shards(split)] for split in columnar.splits}
    plain = datasets.load_dataset(columnar.format, data_files=files, cache_dir=str(tmp_path / "plain"))
    for split in columnar.splits:
        assert theirs[split].features == plain[split].features
        assert theirs[split]["key"][:] == [record["key"] for record in columnar.records(split)]


def test_split_names_that_yaml_reads_as_other_types_are_strings(dsconvert, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(40)))
    splits = ["no", "null", "1", "on"]
    shares = ",".join(f"{name}=0.25" for name in splits)
    options = ["--tokenizer", "bytes", "--format", "parquet"]
    dsconvert("text", corpus, "--out", tmp_path / "names", "--split", shares, *options)
    dsconvert("inspect", tmp_path / "names", "--card")
    theirs = datasets.load_dataset(str(tmp_path / "names"), cache_dir=str(tmp_path / "cache"))
    assert sorted(theirs) == sorted(splits)

    dsconvert("text", corpus, "--out", tmp_path / "dates", "--split", "train=0.5,2024-01=0.5", *options)
    refused = dsconvert("inspect", tmp_path / "dates", "--card", status=2)
    assert "the Hub does not allow the split name" in refused.stderr
    assert not (tmp_path / "dates" / "README.md").exists()
