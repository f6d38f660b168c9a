"""A folder in a layout of the Hub gets the splits that `datasets.load_dataset` finds in it."""

import json

import datasets
import pytest

from dataset import Dataset

LAYOUTS = {
    "folders": ["train/a.jsonl", "train/b.jsonl", "validation/c.jsonl", "test/d.jsonl"],
    "short folders": ["train/a.jsonl", "val/b.jsonl"],
    "other words": ["training/a.jsonl", "dev/b.jsonl", "eval/c.jsonl"],
    "folders below": ["en/train/a.jsonl", "de/train/b.jsonl", "en/test/c.jsonl"],
    "words in folders": ["train-clean/a.jsonl", "dev.other/b.jsonl", "my_test_1/c.jsonl"],
    "files": ["train.jsonl", "validation.jsonl", "test.jsonl"],
    "words in files": ["my-train-00.jsonl", "wiki.valid.jsonl", "x_eval_2.jsonl"],
    "shards": ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/hard-00000-of-00001-abc.jsonl"],
    "one split": ["test.jsonl"],
    "no words": ["retrain.jsonl", "latest.jsonl", "contest/b.jsonl"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_those_of_the_datasets_library(layout, dsconvert, protobuf, tmp_path):
    source = tmp_path / "corpus"
    for name in LAYOUTS[layout]:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) + "\n")
    theirs = datasets.load_dataset(str(source), cache_dir=str(tmp_path / "cache"))
    out = tmp_path / "out"
    dsconvert("text", source, "--tokenizer", "bytes", "--out", out)
    ours = Dataset(out, protobuf)
    found = {
        split: sorted(bytes(record["input_ids"]).decode() for record in ours.records(split)) for split in ours.splits
    }
    assert found == {name: sorted(split["text"]) for name, split in theirs.items()}
