"""The default formats, and the hint of a loader that another one is faster."""

import json
import logging

import pytest

import dsconvert
from dsconvert import format_hint


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_a_loader_says_once_that_another_format_is_faster(command, tmp_path, caplog, monkeypatch, fmt):
    monkeypatch.setattr(format_hint, "MIN_RECORDS", 20)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": f"document {number}"}) + "\n" for number in range(20))
    )
    command("text", tmp_path / "a.jsonl", "--tokenizer", "bytes", "--out", tmp_path / "out", "--format", fmt, "--quiet")
    with caplog.at_level(logging.WARNING, "dsconvert"):
        for _ in range(2):
            assert sum(len(batch["input_ids"]) for batch in dsconvert.Loader(tmp_path / "out", batch_size=8)) == 20
    said = [record.getMessage() for record in caplog.records if "times as fast" in record.getMessage()]
    assert len(said) == (fmt == "parquet")
    assert all(str(tmp_path / "out") in message and "from arrow" in message for message in said)


def test_text_is_stored_as_arrow_and_images_as_parquet(command, tmp_path):
    command("text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", tmp_path / "text", "--quiet")
    command("images", "fixtures/photos/dunes", "--out", tmp_path / "images", "--quiet")
    assert [dsconvert.open(tmp_path / kind).format for kind in ("text", "images")] == ["arrow", "parquet"]
    # Other data in the format of what exists.
    command(
        "text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", tmp_path / "old", "--format", "parquet",
        "--quiet",
    )
    command("text", "fixtures/corpus/stories.jsonl", "--like", tmp_path / "old", "--out", tmp_path / "new", "--quiet")
    assert dsconvert.open(tmp_path / "new").format == "parquet"


def test_shuffled_reads_of_parquet_equal_those_in_order(corpus_in):
    """Rows that were decoded for another record are kept, and returned."""
    split = dsconvert.open(corpus_in("parquet").path, "train")
    records = list(split)
    order = [(number * 37) % len(split) for number in range(3 * len(split))]
    for number in order:
        assert (split[number]["input_ids"] == records[number]["input_ids"]).all()
        assert split[number]["key"] == records[number]["key"]
    keys = dsconvert.open(corpus_in("parquet").path, "train", fields=["key"], verify_checksums=False)
    assert [keys[number]["key"] for number in order] == [records[number]["key"] for number in order]
