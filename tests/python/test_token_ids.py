"""Token ids that exist already: every kind of file, what rows say about themselves, and what is refused."""

import json
import os
import random
import re
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ROOT
from test_chat_rows import model
from test_export import megatron  # noqa: F401

TOKENIZER = "fixtures/tokenizers/bpe.json"
IDS = ["--ids-field", "input_ids"]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records(out):
    """The records of all splits, in order."""
    tables = [pq.read_table(shard) for shard in sorted(out.glob("*/*.parquet"))]
    return pa.concat_tables(tables).to_pylist()


def rejects(out):
    return [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]


def manifest(out):
    return json.loads((out / "manifest.json").read_text())


@pytest.fixture
def text(dsconvert, tmp_path):
    """Converts a source to the output directory `out`."""

    def convert(source, *options, status=0, out="out", allow=True):
        limit = ["--max-rejects", "100%"] if allow else []
        done = dsconvert("text", source, "--out", tmp_path / out, "--format", "parquet", *IDS, *limit, *options, status=status)
        return done, tmp_path / out

    return convert


def rows(count=40, seed=0):
    """Rows with masks and labels that agree."""
    chosen = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [chosen.randrange(1000) for _ in range(chosen.randrange(1, 30))]
        mask = [chosen.randrange(2) for _ in ids[1:]] + [1]
        labels = [id if trained else -100 for id, trained in zip(ids, mask)]
        made.append({"input_ids": ids, "assistant_masks": mask, "labels": labels})
    return made


def table(made, ids=pa.list_(pa.int32()), mask=pa.list_(pa.int8())):
    schema = pa.schema([("input_ids", ids), ("assistant_masks", mask), ("labels", pa.list_(pa.int64()))])
    if pa.types.is_boolean(mask.value_type):
        made = [{**row, "assistant_masks": [bool(flag) for flag in row["assistant_masks"]]} for row in made]
    return pa.Table.from_pylist(made, schema=schema)


def write_parquet(path, made):
    # Two chunks, in row groups of 7 rows.
    columns = table(made, pa.large_list(pa.uint16()), pa.list_(pa.bool_()))
    pq.write_table(pa.concat_tables([columns[:9], columns[9:]]), path, row_group_size=7)


def write_arrow(path, made, **types):
    columns = table(made, **types)
    with pa.ipc.new_file(path, columns.schema) as file:
        for batch in columns.to_batches(max_chunksize=11):
            file.write_batch(batch)


def save_to_disk(path, made):
    datasets = pytest.importorskip("datasets")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(made[:30]), "test": datasets.Dataset.from_list(made[30:])}).save_to_disk(str(path))


SOURCES = {
    "rows.jsonl": write,
    "rows.json": lambda path, made: path.write_text(json.dumps(made)),
    "rows.parquet": write_parquet,
    "rows.arrow": write_arrow,
    "int64.arrow": lambda path, made: write_arrow(path, made, ids=pa.list_(pa.int64())),
    "uint32.arrow": lambda path, made: write_arrow(path, made, ids=pa.large_list(pa.uint32()), mask=pa.list_(pa.bool_())),
    "saved": save_to_disk,
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_every_kind_of_file_keep_their_ids_and_masks(text, tmp_path, name):
    made = rows()
    SOURCES[name](tmp_path / name, made)
    _, out = text(tmp_path / name, "--mask-field", "assistant_masks", "--labels-field", "labels", "--tokenizer", TOKENIZER)
    found = [(record["input_ids"], record["assistant_masks"]) for record in records(out)]
    # Splits are listed by name.
    expected = made[30:] + made[:30] if name == "saved" else made
    assert found == [(row["input_ids"], row["assistant_masks"]) for row in expected]
    assert all(record["length"] == len(record["input_ids"]) for record in records(out))
    assert manifest(out)["tokenizer"]["sha256"] == manifest(out)["options"]["tokenizer"]


def test_ids_without_a_tokenizer_are_32_bits_unless_a_vocabulary_is_named(text, dsconvert, tmp_path):
    source = write(tmp_path / "rows.jsonl", [{"input_ids": [2**32 - 1, 0, 7]}, {"input_ids": [5]}])
    done, out = text(source)
    assert [record["input_ids"] for record in records(out)] == [[2**32 - 1, 0, 7], [5]]
    assert "no id is too large" in done.stdout + done.stderr and "of text each" not in done.stdout
    described = manifest(out)
    assert "tokenizer" not in described or described["tokenizer"] is None
    assert described["options"]["tokenizer"] == "none"
    assert not (out / "tokenizer.json").exists()
    dsconvert("inspect", out, "--verify")
    assert "converted without one" in dsconvert("inspect", out, "--text", status=2).stderr
    recipe = dsconvert("inspect", out, "--recipe").stdout
    assert "--ids-field input_ids" in recipe and "--tokenizer" not in recipe
    _, small = text(source, "--vocab-size", "50304", out="small")
    assert [record["input_ids"] for record in records(small)] == [[5]]
    (reject,) = rejects(small)
    assert reject["code"] == "invalid-value" and "the id 4294967295 of token 0 is not below `vocab_size 50304`" in reject["message"]
    assert {field["type"] for field in manifest(small)["schema"]["fields"] if field["name"] == "input_ids"} == {"ids<u16>"}
    # The same options, and no tokenizer, from the dataset.
    dsconvert("text", source, "--like", small, "--out", tmp_path / "again", "--max-rejects", "100%")
    assert records(tmp_path / "again") == records(small)
    assert manifest(tmp_path / "again")["fingerprint"] == manifest(small)["fingerprint"]


def test_ids_beyond_the_tokenizer_are_rejected(text, tmp_path):
    vocabulary = json.loads((ROOT / TOKENIZER).read_text())
    largest = max([*vocabulary["model"]["vocab"].values(), *(token["id"] for token in vocabulary["added_tokens"])])
    source = write(tmp_path / "rows.jsonl", [{"input_ids": [largest]}, {"input_ids": [1, largest + 1]}])
    _, out = text(source, "--tokenizer", TOKENIZER)
    assert [record["input_ids"] for record in records(out)] == [[largest]]
    (reject,) = rejects(out)
    assert f"the id {largest + 1} of token 1 is beyond {largest}, the largest id of the tokenizer" in reject["message"]
    _, padded = text(source, "--tokenizer", TOKENIZER, "--vocab-size", str(largest + 64), out="padded")
    assert len(records(padded)) == 2


BAD = {
    "missing": ({"other": [1]}, "missing-field"),
    "null": ({"input_ids": None}, "missing-field"),
    "empty": ({"input_ids": [], "mask": []}, "empty"),
    "negative": ({"input_ids": [1, -1], "mask": [1, 1]}, "invalid-value"),
    "fraction": ({"input_ids": [1, 1.5], "mask": [1, 1]}, "wrong-type"),
    "whole-fraction": ({"input_ids": [1, 1.0], "mask": [1, 1]}, "wrong-type"),
    "text": ({"input_ids": ["1"], "mask": [1]}, "wrong-type"),
    "a-text": ({"input_ids": "1 2", "mask": [1]}, "wrong-type"),
    "boolean-ids": ({"input_ids": [True], "mask": [1]}, "wrong-type"),
    "null-id": ({"input_ids": [1, None], "mask": [1, 1]}, "wrong-type"),
    "nested": ({"input_ids": [[1, 2]], "mask": [1]}, "wrong-type"),
    "huge": ({"input_ids": [2**32], "mask": [1]}, "invalid-value"),
    "huger": ({"input_ids": [2**70], "mask": [1]}, "wrong-type"),
    "mask-missing": ({"input_ids": [1, 2]}, "missing-field"),
    "mask-null": ({"input_ids": [1, 2], "mask": None}, "missing-field"),
    "mask-short": ({"input_ids": [1, 2], "mask": [1]}, "invalid-value"),
    "mask-ignored": ({"input_ids": [1, 2], "mask": [1, -100]}, "invalid-value"),
    "mask-two": ({"input_ids": [1, 2], "mask": [1, 2]}, "invalid-value"),
    "mask-fraction": ({"input_ids": [1, 2], "mask": [1, 0.5]}, "wrong-type"),
    "mask-zeros": ({"input_ids": [1, 2], "mask": [0, 0]}, "nothing-to-train"),
    "padding": ({"input_ids": [1, 2], "mask": [1, 1], "attention_mask": [1, 0]}, "invalid-value"),
    "hole": ({"input_ids": [1, 2, 3], "mask": [1, 1, 1], "attention_mask": [1, 0, 1]}, "invalid-value"),
    "lengths": ({"input_ids": [1, 2, 3], "mask": [1, 1, 1], "seq_lengths": [1, 1]}, "invalid-value"),
    "length-zero": ({"input_ids": [1, 2], "mask": [1, 1], "seq_lengths": [2, 0]}, "invalid-value"),
    "positions": ({"input_ids": [1, 2, 3], "mask": [1, 1, 1], "position_ids": [0, 2, 3]}, "invalid-value"),
    "positions-short": ({"input_ids": [1, 2, 3], "mask": [1, 1, 1], "position_ids": [0, 1]}, "invalid-value"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_one_reject_among_good_ones(text, tmp_path, case):
    row, code = BAD[case]
    good = {"input_ids": [1, 2, 3], "mask": [False, True, True], "attention_mask": [1, 1, 1]}
    _, out = text(write(tmp_path / "rows.jsonl", [good, row, good]), "--mask-field", "mask")
    assert [record["assistant_masks"] for record in records(out)] == [[0, 1, 1]] * 2
    assert [reject["code"] for reject in rejects(out)] == [code]


def test_bad_lists_in_tables_are_rejects_and_bad_types_are_refused(text, tmp_path):
    def convert(name, ids, mask, **options):
        pq.write_table(pa.table({"input_ids": ids, "mask": mask}), tmp_path / f"{name}.parquet")
        return text(tmp_path / f"{name}.parquet", "--mask-field", "mask", out=name, **options)

    ids = pa.array([[1, 2], None, [], [1, None], [-1, 2], [1, 2]], pa.list_(pa.int64()))
    mask = pa.array([[True, False], [True], [], [True, True], [True, True], [True]], pa.list_(pa.bool_()))
    _, out = convert("rows", ids, mask)
    assert [record["input_ids"] for record in records(out)] == [[1, 2]]
    assert [reject["code"] for reject in rejects(out)] == ["missing-field", "empty", "wrong-type", "invalid-value", "invalid-value"]
    for name, wrong in {"floats": pa.array([[1.0, 2.0]]), "texts": pa.array([["a"]]), "text": pa.array(["1 2"])}.items():
        done, _ = convert(name, wrong, pa.array([[1, 1]]), status=2)
        assert "expected lists of integers" in done.stderr, done.stderr
    done, _ = convert("flags", pa.array([[True, False]]), pa.array([[1, 1]]), status=2)
    assert "expected lists of integers" in done.stderr


def test_a_token_is_trained_where_all_masks_are_one(text, tmp_path):
    row = {"input_ids": [5, 6, 7, 8], "completion_mask": [0, 1, 1, 1], "assistant_masks": [1, 1, 0, 1]}
    _, out = text(write(tmp_path / "rows.jsonl", [row]), "--mask-field", "completion_mask", "--mask-field", "assistant_masks")
    assert records(out)[0]["assistant_masks"] == [0, 1, 0, 1]


def test_labels_that_disagree_with_the_masks_are_rejected(text, tmp_path):
    good = {"input_ids": [5, 6], "mask": [0, 1], "labels": [-100, 6]}
    source = write(tmp_path / "rows.jsonl", [good, {**good, "labels": [5, 6]}, {**good, "labels": [-100, 7]}, good])
    _, out = text(source, "--mask-field", "mask", "--labels-field", "labels")
    assert len(records(out)) == 2
    assert [reject["code"] for reject in rejects(out)] == ["invalid-value", "label-mismatch"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("shift", ["next", "before"])
def test_shifted_labels_stop_the_run_before_it_starts(text, tmp_path, name, shift):
    made = [row for row in rows(200) if len(row["input_ids"]) > 5]
    for at, row in enumerate(made):
        ids = row["input_ids"]
        row["labels"] = ids[1:] + [-100] if shift == "next" else [-100] + ids[:-1]
        if at % 3 == 0:
            row["labels"] = ids
    SOURCES[name](tmp_path / name, made)
    done, out = text(tmp_path / name, "--labels-field", "labels", status=2)
    what = {"next": "each label is the id of the next token", "before": "each label is the id of the token before"}
    assert what[shift] in done.stderr and "labels are not shifted here" in done.stderr, done.stderr
    assert not out.exists()


def test_bounds_of_documents_become_records(text, tmp_path):
    made = [
        {"input_ids": [1, 2, 3, 4, 5], "seq_lengths": [2, 3], "mask": [0, 1, 1, 0, 1]},
        {"input_ids": [6, 7, 8], "position_ids": [0, 0, 1], "mask": [1, 0, 1]},
        {"input_ids": [9], "position_ids": [0], "mask": [1]},
    ]
    source = write(tmp_path / "rows.jsonl", made)
    _, out = text(source, "--mask-field", "mask")
    assert [(record["input_ids"], record["assistant_masks"]) for record in records(out)] == [
        ([1, 2], [0, 1]), ([3, 4, 5], [1, 0, 1]), ([6], [1]), ([7, 8], [0, 1]), ([9], [1]),
    ]
    keys = [record["key"] for record in records(out)]
    assert [key.rpartition("@")[2] for key in keys[:4]] == ["0", "2", "0", "1"] and "@" not in keys[4]
    counts = manifest(out)
    assert (counts["found"], counts["converted"]) == (3, 3)
    # A filter applies to documents, and a row without any is one filtered item.
    _, longer = text(source, "--mask-field", "mask", "--filter-length", "2:", out="longer")
    assert [record["input_ids"] for record in records(longer)] == [[1, 2], [3, 4, 5], [7, 8]]
    counts = manifest(longer)
    assert (counts["converted"], counts["filtered"]) == (2, 1)
    # Documents are packed again, or stay together.
    _, packed = text(source, "--mask-field", "mask", "--pack", "6", out="packed")
    assert sum(len(record["cu_seqlens"]) - 1 for record in records(packed)) == 5
    _, kept = text(source, "--mask-field", "mask", "--pack", "6", "--keep-packs", out="kept")
    assert [(record["input_ids"], record["cu_seqlens"]) for record in records(kept)] == [
        ([1, 2, 3, 4, 5], [0, 2, 5]), ([6, 7, 8], [0, 1, 3]), ([9], [0, 1]),
    ]
    assert all(set(record["piece_starts"]) == {0} for record in records(kept))
    _, short = text(source, "--mask-field", "mask", "--pack", "4", "--keep-packs", out="short")
    assert [reject["code"] for reject in rejects(short)] == ["too-long"]


def test_padding_is_trimmed_from_all_lists(text, tmp_path):
    row = {"input_ids": [0, 0, 5, 6, 0], "labels": [-100, -100, 5, -100, -100], "attention_mask": [0, 0, 1, 1, 0], "position_ids": [1, 1, 0, 1, 1]}
    only = {"input_ids": [0], "labels": [-100], "attention_mask": [0]}
    _, out = text(write(tmp_path / "rows.jsonl", [row, only]), "--labels-field", "labels", "--trim-padding")
    (record,) = records(out)
    assert (record["input_ids"], record["assistant_masks"]) == ([5, 6], [1, 0])
    assert [reject["code"] for reject in rejects(out)] == ["empty"]


def test_the_last_token_of_each_document_is_kept_stripped_or_required(text, tmp_path):
    made = [{"input_ids": [5, 2, 6, 2], "seq_lengths": [2, 2]}, {"input_ids": [7, 2, 2]}, {"input_ids": [8]}]
    source = write(tmp_path / "rows.jsonl", made)
    for policy, expected in {
        "keep": [[5, 2], [6, 2], [7, 2, 2], [8]],
        "strip:2": [[5], [6], [7, 2], [8]],
        "require:2": [[5, 2], [6, 2], [7, 2, 2]],
    }.items():
        _, out = text(source, "--eod", policy, out=policy.replace(":", "-"))
        assert [record["input_ids"] for record in records(out)] == expected
        assert len(rejects(out)) == (policy == "require:2")
    folder = model(tmp_path / "model", "$A")
    eos = next(token["id"] for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"] if token["content"] == "</s>")
    source = write(tmp_path / "named.jsonl", [{"input_ids": [5, eos]}])
    for policy in ["strip", "strip:</s>", f"strip:{eos}"]:
        _, out = text(source, "--eod", policy, "--tokenizer", folder, out=f"{policy.replace('/', '')}-named")
        assert [record["input_ids"] for record in records(out)] == [[5]]
    for policy, options in [("strip", []), ("strip:</s>", []), ("require:<none>", ["--tokenizer", folder])]:
        done, _ = text(source, "--eod", policy, *options, status=2, out="none")
        assert "name the token or its id" in done.stderr


def test_equal_rows_are_duplicates_whatever_the_file(text, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    made = [{"input_ids": [1, 2, 3]}, {"input_ids": [1, 2]}, {"input_ids": [1, 2, 3], "seq_lengths": [1, 2]}]
    write(folder / "a.jsonl", made)
    pq.write_table(pa.table({"input_ids": [[1, 2, 3], [4]]}), folder / "b.parquet")
    _, out = text(folder, "--dedup", "exact")
    assert manifest(out)["duplicates"] == 1
    assert [record["input_ids"] for record in records(out)] == [[1, 2, 3], [1, 2], [1], [2, 3], [4]]


def test_options_of_texts_and_files_of_texts_are_refused(text, tmp_path):
    source = write(tmp_path / "rows.jsonl", [{"input_ids": [1]}])
    for options, message in [
        (["--text-field", "x"], "--text-field applies only to texts, not to token ids"),
        (["--add-eos"], "applies only to texts"),
        (["--normalize", "nfc"], "applies only to texts"),
        (["--messages-field", "m"], "applies only to texts"),
        (["--keep-packs"], "applies only with --pack"),
        (["--keep-packs", "--pack", "8", "--max-length", "4"], "excludes --max-length"),
        (["--vocab-size", "0"], "there is at least one id"),
        (["--mask-field", "nothing"], "no row has the field \"nothing\""),
    ]:
        done, _ = text(source, *options, status=2)
        assert message in done.stderr, done.stderr
    (tmp_path / "a.csv").write_text("input_ids\n1\n")
    done, _ = text(tmp_path / "a.csv", status=2)
    assert "token ids are not read from csv files" in done.stderr


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.arrow"])
def test_a_million_tokens_are_one_record(text, tmp_path, name):
    ids = list(range(1000)) * 1000
    made = [{"input_ids": row, "assistant_masks": [1] * len(row), "labels": row} for row in [ids, [1, 2], ids]]
    SOURCES[name](tmp_path / name, made)
    _, out = text(tmp_path / name, "--vocab-size", "1000")
    assert [record["input_ids"] for record in records(out)] == [ids, [1, 2], ids]
    _, short = text(tmp_path / name, "--max-document-bytes", "1MiB", out="short")
    assert [record["input_ids"] for record in records(short)] == [[1, 2]]
    assert [reject["code"] for reject in rejects(short)] == ["too-large"] * 2


# Weights

WEIGHTED = ["--mask-field", "mask", "--weights-field", "weights"]


def weighted_rows(count=40):
    chosen = random.Random(11)
    made = []
    for at in range(count):
        ids = [chosen.randrange(1000) for _ in range(chosen.randrange(2, 30))]
        weights = [chosen.choice([0.0, 0.25, 1.0, -1.5, 3.0]) for _ in ids]
        made.append({"input_ids": ids, "mask": [0] + [1] * (len(ids) - 1), "weights": weights})
    return made


def weights_as(type):
    def write_weighted(path, made):
        pq.write_table(pa.Table.from_pylist(made, schema=pa.schema({"input_ids": pa.list_(pa.int32()), "mask": pa.list_(pa.int8()), "weights": type})), path)

    return write_weighted


@pytest.mark.parametrize("name, written", {
    "rows.jsonl": write,
    "float32.parquet": weights_as(pa.list_(pa.float32())),
    "float64.parquet": weights_as(pa.large_list(pa.float64())),
    "float16.parquet": weights_as(pa.list_(pa.float16())),
    "saved": lambda path, made: pytest.importorskip("datasets").Dataset.from_list(made).save_to_disk(str(path)),
}.items())
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_weights_are_kept_and_cut_with_the_ids(dsconvert, tmp_path, name, written, format):
    made = weighted_rows()
    written(tmp_path / name, [{**row, "weights": np.array(row["weights"], np.float16) if "16" in name else row["weights"]} for row in made])

    def convert(out, *options):
        dsconvert("text", tmp_path / name, *IDS, *WEIGHTED, "--out", tmp_path / out, "--format", format, *options)
        dsconvert("inspect", tmp_path / out, "--verify")
        if format == "parquet":
            return records(tmp_path / out)
        tables = [pa.ipc.open_file(shard).read_all() for shard in sorted((tmp_path / out).glob("train/*.arrow"))]
        return pa.concat_tables(tables).to_pylist()

    assert [(record["input_ids"], record["token_weights"]) for record in convert("out")] == [(row["input_ids"], row["weights"]) for row in made]
    pieces = convert("cut", "--max-length", "7", "--overflow", "split")
    assert [weight for piece in pieces for weight in piece["token_weights"]] == [weight for row in made for weight in row["weights"]]
    assert max(len(piece["token_weights"]) for piece in pieces) == 7
    # A document of a packed row is found by its first id and its length.
    whole = {tuple(row["input_ids"]): row["weights"] for row in made}
    packed = convert("packed", "--pack", "40")
    found = 0
    for row in packed:
        for start, end in zip(row["cu_seqlens"], row["cu_seqlens"][1:]):
            found += 1
            assert whole[tuple(row["input_ids"][start:end])] == row["token_weights"][start:end]
    assert found == len(made)


def test_weights_of_each_document_of_a_row_are_its_own(text, tmp_path):
    row = {"input_ids": [0, 1, 2, 3, 9, 9], "weights": [7, 0.5, 1, 2, 3, 7], "mask": [0, 1, 1, 1, 1, 0], "attention_mask": [0, 1, 1, 1, 1, 0], "position_ids": [0, 0, 1, 2, 0, 0]}
    _, out = text(write(tmp_path / "rows.jsonl", [row]), *WEIGHTED, "--trim-padding")
    assert [(record["input_ids"], record["token_weights"]) for record in records(out)] == [([1, 2, 3], [0.5, 1, 2]), ([9], [3])]


def test_weights_that_are_no_numbers_of_each_token_are_rejected(text, dsconvert, tmp_path):
    good = {"input_ids": [1, 2], "mask": [1, 1], "weights": [1, -0.5]}
    made = {
        "missing": ({"weights": None}, "missing-field"),
        "short": ({"weights": [1]}, "invalid-value"),
        "text": ({"weights": ["1", 1]}, "wrong-type"),
        "null": ({"weights": [None, 1]}, "wrong-type"),
        "flag": ({"weights": [True, 1]}, "wrong-type"),
        "large": ({"weights": [1e300, 1]}, "invalid-value"),
    }
    _, out = text(write(tmp_path / "rows.jsonl", [good, *({**good, **row} for row, _ in made.values())]), *WEIGHTED)
    assert [reject["code"] for reject in rejects(out)] == [code for _, code in made.values()]
    assert [record["token_weights"] for record in records(out)] == [[1.0, -0.5]]
    floats = [[1.0, float("nan")], [float("inf"), 1.0], [0.5, 2.0]]
    pq.write_table(pa.table({"input_ids": [[1, 2]] * 3, "mask": [[1, 1]] * 3, "weights": floats}), tmp_path / "rows.parquet")
    _, table = text(tmp_path / "rows.parquet", *WEIGHTED, out="table")
    assert [reject["message"].partition(";")[0] for reject in rejects(table)] == ['the field "weights" is NaN at token 1', 'the field "weights" is inf at token 0']
    assert [record["token_weights"] for record in records(table)] == [[0.5, 2.0]]
    # Equal ids with other weights are not duplicates.
    _, once = text(write(tmp_path / "twice.jsonl", [good, good, {**good, "weights": [1, 1]}]), *WEIGHTED, "--dedup", "exact", out="once")
    assert len(records(once)) == 2
    done = dsconvert("text", tmp_path / "rows.jsonl", *IDS, *WEIGHTED, "--format", "msgpack", "--out", tmp_path / "none", status=2)
    assert "token_weights" in done.stderr, done.stderr
    done = dsconvert("text", write_megatron(tmp_path / "data", DOCUMENTS), *IDS, "--weights-field", "w", "--out", tmp_path / "none", status=2)
    assert "has only ids" in done.stderr


@pytest.mark.parametrize("options", [{}, {"seq_len": 48}, {"max_tokens": 96, "bucket": "length"}])
def test_weights_in_batches_move_with_the_labels(text, tmp_path, options):
    dsconvert = pytest.importorskip("dsconvert")
    made = weighted_rows()
    for row in made:
        row["mask"] = [int(at % 3 != 1) for at in range(len(row["input_ids"]))]
    _, out = text(write(tmp_path / "rows.jsonl", made), *WEIGHTED)
    whole = {tuple(row["input_ids"]): row for row in made}
    for shift in ["megatron", "huggingface"]:
        options = {"batch_size": 4, **options} if "max_tokens" not in options else options
        loader = dsconvert.Loader(out, labels_for=None if shift == "megatron" else shift, **options)
        seen = 0
        for batch in loader:
            labels, weights = batch["labels"], batch["token_weights"]
            assert weights.dtype == np.float32 and weights.shape == labels.shape
            assert (weights[labels == -100] == 0).all()
            by_label = sorted(zip(labels[labels != -100].tolist(), weights[labels != -100].tolist()))
            # The others are padding.
            ids = [ids for ids in map(tuple, documents_of(batch)) if ids in whole]
            expected = sorted((id, weight) for one in ids for id, mask, weight in list(zip(one, whole[one]["mask"], whole[one]["weights"]))[1:] if mask)
            assert by_label == expected
            seen += len(ids)
        assert seen == len(made)


def documents_of(batch):
    """The ids of the documents of a batch."""
    if "cu_seqlens" in batch:
        ids, bounds = batch["input_ids"].reshape(-1), batch["cu_seqlens"].tolist()
        yield from (ids[start:end].tolist() for start, end in zip(bounds, bounds[1:]))
    else:
        for row, length in zip(batch["input_ids"], batch["lengths"]):
            yield row[:length].tolist()


# Megatron


def write_megatron(prefix, documents, dtype=np.uint16, code=8, **planted):
    """Writes documents, each a list of sequences, byte by byte, with planted defects."""
    sequences = [sequence for document in documents for sequence in document]
    bounds = np.cumsum([0, *map(len, documents)]).tolist()
    lengths = [len(sequence) for sequence in sequences]
    offsets = (np.cumsum([0, *lengths])[:-1] * np.dtype(dtype).itemsize).tolist()
    bounds, lengths, offsets = (planted.get(name, value) for name, value in [("bounds", bounds), ("lengths", lengths), ("offsets", offsets)])
    index = planted.get("magic", b"MMIDIDX\0\0") + struct.pack("<QB", planted.get("version", 1), planted.get("code", code))
    index += struct.pack("<QQ", planted.get("sequences", len(lengths)), len(bounds))
    index += np.array(lengths, np.int32).tobytes() + np.array(offsets, np.int64).tobytes() + np.array(bounds, np.int64).tobytes()
    ids = b"".join(np.array(sequence, dtype).tobytes() for sequence in sequences)
    prefix.with_suffix(".idx").write_bytes(planted.get("index", lambda index: index)(index) + planted.get("modes", b""))
    prefix.with_suffix(".bin").write_bytes(planted.get("ids", lambda ids: ids)(ids))
    return prefix.with_suffix(".idx")


DOCUMENTS = [[[1, 2, 3]], [[4], [5, 6]], [[7, 8]], [[9]]]


@pytest.mark.parametrize("code, dtype", {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}.items())
def test_documents_of_megatron_are_exact_in_every_width(text, tmp_path, code, dtype):
    # Sequences of one document are joined.
    _, out = text(write_megatron(tmp_path / "data", DOCUMENTS, dtype, code))
    assert [record["input_ids"] for record in records(out)] == [[1, 2, 3], [4, 5, 6], [7, 8], [9]]
    assert [record["key"] for record in records(out)] == [f"data.idx#{at}" for at in range(4)]


def test_what_megatrons_own_writer_writes_is_read_exactly(text, dsconvert, megatron, tmp_path):
    import torch

    chosen = random.Random(3)
    documents = [[chosen.randrange(60_000) for _ in range(chosen.randrange(1, 200))] for _ in range(500)]
    for dtype in [np.uint16, np.int32]:
        prefix = tmp_path / np.dtype(dtype).name
        builder = megatron[2].IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        for at, document in enumerate(documents):
            half = len(document) // 2
            if at % 3 == 0 and half:
                # Several sequences, as `add_document` writes them.
                builder.add_document(torch.tensor(document), [half, len(document) - half])
            else:
                builder.add_item(torch.tensor(document))
                builder.end_document()
        builder.finalize(f"{prefix}.idx")
        # Units of a few documents, and blocks of several units.
        _, out = text(f"{prefix}.idx", "--unit-bytes", "9KiB", "--vocab-size", "60000", out=f"{prefix.name}-out")
        assert [record["input_ids"] for record in records(out)] == documents
        assert manifest(out)["schema"]["fields"][1]["type"] == "ids<u16>"
        # And back.
        dsconvert("export", out, "--to", "megatron", "--eod", "none", "--out", tmp_path / f"{prefix.name}-back")
        back = megatron[2].IndexedDataset(str(tmp_path / f"{prefix.name}-back/train"))
        assert [back[at].tolist() for at in range(len(documents))] == documents


PLANTED = {
    "magic": dict(magic=b"MMIDIDX\0\1"),
    "version": dict(version=2),
    "float": dict(code=7),
    "double": dict(code=6),
    "code": dict(code=9),
    "multimodal": dict(modes=bytes(5)),
    "index-cut": dict(index=lambda index: index[:-1]),
    "index-cut-in-header": dict(index=lambda index: index[:20]),
    "index-longer": dict(index=lambda index: index + bytes(3)),
    "ids-cut": dict(ids=lambda ids: ids[:-2]),
    "ids-cut-in-id": dict(ids=lambda ids: ids[:-1]),
    "ids-longer": dict(ids=lambda ids: ids + bytes(2)),
    "ids-empty": dict(ids=lambda ids: b""),
    "sequences-too-many": dict(sequences=2**62),
    "sequences-other": dict(sequences=4),
    "length-negative": dict(lengths=[3, 1, 2, 2, -1]),
    "length-other": dict(lengths=[3, 1, 2, 1, 2]),
    "offset-other": dict(offsets=[0, 6, 8, 14, 16]),
    "offset-negative": dict(offsets=[0, 6, 8, -12, 16]),
    "offsets-start": dict(offsets=[2, 8, 10, 14, 18]),
    "bounds-start": dict(bounds=[1, 1, 3, 4, 5]),
    "bounds-end": dict(bounds=[0, 1, 3, 4, 4]),
    "bounds-beyond": dict(bounds=[0, 1, 3, 4, 6]),
    "bounds-fall": dict(bounds=[0, 3, 1, 4, 5]),
    "bounds-negative": dict(bounds=[0, 1, -3, 4, 5]),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_inconsistent_files_of_megatron_are_refused_before_work(text, tmp_path, defect):
    done, out = text(write_megatron(tmp_path / "data", DOCUMENTS, **PLANTED[defect]), status=2)
    assert "data.idx" in done.stderr and not out.exists(), done.stderr


def test_empty_documents_of_megatron_are_rejects(text, tmp_path):
    _, out = text(write_megatron(tmp_path / "data", [[[1]], [], [[]], [[2]]]))
    assert [record["input_ids"] for record in records(out)] == [[1], [2]]
    assert [reject["code"] for reject in rejects(out)] == ["empty", "empty"]


def test_files_of_megatron_say_what_they_need(text, dsconvert, tmp_path):
    source = write_megatron(tmp_path / "data", DOCUMENTS)
    done = dsconvert("text", source, "--tokenizer", "bytes", "--out", tmp_path / "none", status=2)
    assert "--ids-field" in done.stderr
    for option in ["--mask-field", "--labels-field", "--key-field", "--keep-fields"]:
        done, _ = text(source, option, "x", status=2)
        assert "has only ids" in done.stderr, done.stderr
    # A folder of texts is converted without it.
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("text")
    write_megatron(tmp_path / "folder/data", DOCUMENTS)
    dsconvert("text", tmp_path / "folder", "--tokenizer", "bytes", "--out", tmp_path / "texts")
    (tmp_path / "data.bin").unlink()
    done, _ = text(source, status=3)
    assert "beside it" in done.stderr


def test_a_changed_file_of_ids_is_noticed(text, dsconvert, tmp_path):
    source = write_megatron(tmp_path / "data", DOCUMENTS)
    out = tmp_path / "planned"
    dsconvert("plan", "text", source, *IDS, "--out", out)
    ids = tmp_path / "data.bin"
    ids.write_bytes(ids.read_bytes()[::-1])
    os.utime(ids, ns=(1, 1))
    done = dsconvert("run", out, status=3)
    assert "data.bin: the file was written to after the run was planned" in done.stderr, done.stderr


# The guide


def test_the_programs_of_the_guide_run(dsconvert, binary, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    page = (ROOT / "docs/how-to/tokens-you-already-have.md").read_text()
    made = rows()
    write(tmp_path / "rows.jsonl", made)
    masked = [{**row, "completion_mask": [1] * len(row["input_ids"])} for row in made]
    datasets.DatasetDict({"train": datasets.Dataset.from_list(masked)}).save_to_disk(str(tmp_path / "saved"))
    pairs = [{key: a[key] + b[key] for key in ["input_ids", "labels"]} | {"seq_lengths": [len(a["input_ids"]), len(b["input_ids"])]} for a, b in zip(made[::2], made[1::2])]
    datasets.Dataset.from_list(pairs).save_to_disk(str(tmp_path / "packed"))
    write_megatron(tmp_path / "corpus", DOCUMENTS)
    model(tmp_path / "MODEL")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^dsconvert (.*)$", page, re.MULTILINE)
    for line in shown:
        done = subprocess.run([binary, *line.split()], capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert len(shown) == 6
    assert [list(record["input_ids"]) for record in dataset_records("documents")] == [row["input_ids"] for row in made]
    assert [len(record["cu_seqlens"]) for record in dataset_records("rows")] == [3] * 20
    pytest.importorskip("dsconvert")
    (program,) = re.findall(r"```python\n# read_documents.py\n(.*?)```", page, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trained = sum(int(line.split()[-1]) for line in done.stdout.splitlines())
    # A document that does not start a row loses no label but that of its first token.
    assert 0 < trained <= sum(label != -100 for row in made for label in row["labels"])


def dataset_records(name):
    dsconvert = pytest.importorskip("dsconvert")
    split = dsconvert.open(name, "train")
    return [split[at] for at in range(len(split))]


# TRL


@pytest.mark.sampled("frameworks", one_in=2)
@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_rows_that_trl_has_packed_keep_their_bounds_and_labels(text, tmp_path, strategy):
    """What SFTTrainer has packed becomes our packed batch: the labels and positions that its collator makes."""
    trl, transformers, datasets, dsconvert = map(pytest.importorskip, ["trl", "transformers", "datasets", "dsconvert"])
    folder = model(tmp_path / "model", "<s> $A")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    chosen = random.Random(5)
    words = ["the", "house", "was", "never", "empty", "again"]
    sentence = lambda: " ".join(chosen.choices(words, k=chosen.randrange(1, 12)))
    pairs = datasets.Dataset.from_list([{"prompt": sentence(), "completion": " " + sentence()} for _ in range(60)])
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **size))
    options = trl.SFTConfig(str(tmp_path / "trainer"), packing=True, packing_strategy=strategy, max_length=48, report_to=[], use_cpu=True, bf16=False)
    trainer = trl.SFTTrainer(network, options, train_dataset=pairs, processing_class=tokenizer)
    packed = trainer.train_dataset
    packed.save_to_disk(str(tmp_path / "packed"))
    field = ["--labels-field", "labels"] if "labels" in packed.column_names else ["--mask-field", "completion_mask"]
    _, out = text(tmp_path / "packed", *field, "--tokenizer", folder, "--pack", "48", "--keep-packs")
    ours = records(out)
    assert [record["input_ids"] for record in ours] == packed["input_ids"]
    if strategy == "bfd":
        assert [np.diff(record["cu_seqlens"]).tolist() for record in ours] == packed["seq_lengths"]
    collator = trl.trainer.sft_trainer.DataCollatorForLanguageModeling(tokenizer.pad_token_id, padding_free=strategy == "bfd")
    loader = dsconvert.Loader(str(out), batch_size=4, shuffle=False, labels_for="huggingface", last="short")
    seen = 0
    for batch in loader:
        count = len(batch["input_ids"])
        theirs = collator([packed[at] for at in range(seen, seen + count)])
        seen += count
        if strategy == "bfd":
            # One row without padding, against rows with padding.
            lengths = [len(ids) for ids in packed[seen - count : seen]["input_ids"]]
            flat = lambda name: np.concatenate([row[:length] for row, length in zip(batch[name], lengths)])
            assert flat("input_ids").tolist() == theirs["input_ids"][0].tolist()
            assert flat("position_ids").tolist() == theirs["position_ids"][0].tolist()
            # A label of the first token of a document would be predicted from another document.
            starts = flat("position_ids") == 0
            assert np.where(starts, -100, flat("labels")).tolist() == theirs["labels"][0].tolist()
        else:
            # Nothing predicts the first token of a row.
            assert batch["labels"][:, 1:].tolist() == theirs["labels"][:, 1:].tolist()
    assert seen == len(packed)
