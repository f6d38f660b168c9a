"""Fields that a function computes of the records of a dataset: compared with the function applied by hand."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import companion_functions as functions
import dsconvert
from conftest import ROOT

SCHEMA = {"mean": dsconvert.array("float32", (3,)), "size": "str"}


@pytest.fixture(scope="module")
def photos(command, tmp_path_factory):
    """Images of several sizes in two splits."""
    out = tmp_path_factory.mktemp("photos") / "photos"
    command(
        "images", "fixtures/photos", "--out", out, "--resize", "shorter:24", "--split", "train=0.7,validation=0.3",
        "--quiet",
    )
    return out


def files(path):
    return {p.relative_to(path): p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}


def add(photos, out, fn=functions.mean, schema=SCHEMA, **options):
    return dsconvert.add_fields(
        photos, fn, out, schema, **{"read": ["image"], "version": "1", "unit_records": 7, **options}
    )


def test_the_fields_are_what_the_function_returns(photos, tmp_path):
    done = add(photos, tmp_path / "means")
    plain = dsconvert.open(photos, decode=True)
    data = dsconvert.open(photos, add=[tmp_path / "means"], decode=True)
    count = 0
    for name in plain.splits:
        for record, expected in zip(data[name], plain[name], strict=True):
            made = functions.mean(expected)
            assert record["key"] == expected["key"] and record["size"] == made["size"]
            assert np.array_equal(record["mean"], made["mean"])
            count += 1
    assert done == dsconvert.AddedFields(["mean", "size"], count, 0, 0, False, True)
    assert add(photos, tmp_path / "means", resume=True).was_complete


@pytest.mark.parametrize("options", [
    {"workers": 2}, {"workers": 1, "batch_size": 5}, {"batch_size": 4, "group": "shape"},
    {"workers": 2, "batch_size": 3},
], ids=str)
def test_workers_and_batches_give_the_same_records(photos, tmp_path, options):
    fn = functions.Means() if "batch_size" in options else functions.mean
    schema = {**SCHEMA, "shapes": "int64"} if "batch_size" in options else SCHEMA
    add(photos, tmp_path / "one")
    add(photos, tmp_path / "other", fn, schema, **options)
    one, other = (dsconvert.open(tmp_path / name) for name in ("one", "other"))
    shapes = set()
    for name in one.splits:
        for record, same in zip(one[name], other[name], strict=True):
            shapes.add(same.pop("shapes", None))
            assert record.keys() == same.keys() and record["key"] == same["key"]
            assert np.array_equal(record["mean"], same["mean"]) and record["size"] == same["size"]
    if options.get("group"):
        assert shapes == {1}, "each batch has images of one size"
    elif "batch_size" in options:
        assert max(shapes) > 1


def test_the_bytes_depend_neither_on_workers_nor_on_parts(photos, tmp_path):
    add(photos, tmp_path / "one")
    add(photos, tmp_path / "two", workers=2)
    assert not add(photos, tmp_path / "parts", part=(2, 3)).committed
    assert not add(photos, tmp_path / "parts", part=(1, 3)).committed
    assert add(photos, tmp_path / "parts", part=(3, 3)).committed
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "parts")


def test_what_changed_is_refused_with_both_values(command, photos, tmp_path):
    out = tmp_path / "means"
    add(photos, out, functions.Means(1), {**SCHEMA, "shapes": "int64"}, batch_size=4)
    for options, name in [
        ({"version": "2"}, "version: \"1\", not \"2\""), ({"batch_size": 5}, "batch_size: 4, not 5"),
        ({"group": "shape"}, 'group: null, not "shape"'),
    ]:
        with pytest.raises(dsconvert.UsageError, match=f"made with another {name}"):
            add(
                photos, out, functions.Means(1), {**SCHEMA, "shapes": "int64"},
                **{"batch_size": 4, "resume": True, **options},
            )
    with pytest.raises(dsconvert.UsageError, match="made with another function"):
        add(photos, out, functions.Means(2), {**SCHEMA, "shapes": "int64"}, batch_size=4, resume=True)
    # The base is converted again: other pixels, and the same keys.
    base = tmp_path / "base"
    shutil.copytree(photos, base)
    dsconvert.open(base, add=[out])
    command(
        "images", "fixtures/photos", "--out", base, "--resize", "shorter:20", "--split", "train=0.7,validation=0.3",
        "--overwrite",
    )
    with pytest.raises(dsconvert.UsageError, match='the content of "image" in split "train" had the digest xxh3-128:'):
        dsconvert.open(base, add=[out])
    with pytest.raises(dsconvert.UsageError, match="made with another base"):
        add(base, out, functions.Means(1), {**SCHEMA, "shapes": "int64"}, batch_size=4, resume=True)


def test_failures_stop_the_run_or_are_null(photos, tmp_path):
    out = tmp_path / "picky"
    with pytest.raises(dsconvert.NotCommittedError, match="the record .* has no values: (ValueError: no cats|no ones)") as caught:
        add(photos, out, functions.picky)
    assert "resume=True" in caught.value.remedy
    with pytest.raises(dsconvert.IoError, match="there is no manifest.json"):
        dsconvert.open(out)
    shutil.rmtree(out)
    done = add(photos, out, functions.picky, missing="null")
    data = dsconvert.open(photos, add=[out])
    failed = 0
    for name in data.splits:
        for record in data[name]:
            is_null = "cat" in record["key"] or "1" in record["key"]
            assert (record["mean"] is None) == (record["size"] is None) == is_null
            failed += is_null
    assert 0 < failed == done.missing < done.records
    with pytest.raises(dsconvert.NotCommittedError, match="'mean' is of type"):
        add(photos, tmp_path / "wrong", functions.wrong)
    with pytest.raises(dsconvert.NotCommittedError, match="a worker was killed by signal 9 in unit"):
        add(photos, tmp_path / "dead", functions.dies, workers=1)


def test_wrong_arguments_are_refused_before_anything_is_written(command, photos, tmp_path):
    out = tmp_path / "out"
    for options, message in [
        ({"version": ""}, "version is ''"), ({"read": ["nothing"]}, 'no field "nothing"'), ({"schema": None}, "schema is missing"),
        ({"schema": {"width": "int64"}}, 'has a field "width" already'), ({"on": "id"}, "on does not apply"),
        ({"group": "size"}, "group cannot be 'size'"),
        ({"workers": "cuda", "fn": lambda r: r}, "no GPU|cannot be sent"),
        ({"fn": lambda record: {}, "workers": 1}, "move fn to a module|cannot be sent to another process"),
        ({"unit_records": 0}, "unit_records is 0"), ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": 0, "per": {"x": "input_ids"}}, 'no field "x"'),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            add(photos, out, **options)
        assert not out.exists(), options
    with pytest.raises(dsconvert.UsageError, match="version does not apply to the columns of a table"):
        dsconvert.add_fields(photos, photos, out, version="1")
    packed = tmp_path / "packed"
    command("text", "fixtures/corpus", "--out", packed, "--tokenizer", "bytes", "--pack", "256", "--quiet")
    with pytest.raises(dsconvert.UsageError, match="made with `pack`"):
        dsconvert.add_fields(packed, functions.reads, out, {"count": "int64"}, read=["input_ids"], version="1")


def test_values_per_token_and_a_companion_of_a_companion(command, tmp_path):
    base = tmp_path / "base"
    command("text", "fixtures/corpus", "--out", base, "--tokenizer", "fixtures/tokenizers/bpe.json", "--quiet")
    schema = {"count": "int64", "weights": dsconvert.array("float32", (None,))}
    options = {"read": ["input_ids"], "version": "1"}
    dsconvert.add_fields(base, functions.reads, tmp_path / "first", schema, per={"weights": "input_ids"}, **options)
    for batch in dsconvert.Loader(base, add=[tmp_path / "first"], batch_size=3, seq_len=64, fields=["labels", "weights"]):
        assert np.array_equal(batch["weights"], np.where(batch["labels"] == -100, 0, batch["labels"] + 1))
    with pytest.raises(dsconvert.NotCommittedError, match="'weights' of key .* has .* values, and the record has"):
        dsconvert.add_fields(
            base, functions.too_few, tmp_path / "few", {"weights": schema["weights"]}, per={"weights": "input_ids"},
            **options,
        )
    second = tmp_path / "second"
    dsconvert.add_fields(
        base, doubled, second, {"twice": "int64"}, read=["count"], add=[tmp_path / "first"], version="1"
    )
    data = dsconvert.open(base, add=[tmp_path / "first", second])
    assert all(record["twice"] == 2 * record["count"] == 2 * record["length"] for record in data)
    with pytest.raises(dsconvert.UsageError, match='made from the field "count", which the dataset does not have'):
        dsconvert.open(base, add=[second])
    # The same field with other values.
    other = tmp_path / "other"
    dsconvert.add_fields(base, longer, other, {"count": "int64"}, **options)
    with pytest.raises(dsconvert.UsageError, match='the content of "count" in split "train" had the digest'):
        dsconvert.open(base, add=[other, second])


def longer(record):
    return {"count": len(record["input_ids"]) + 1}


def doubled(record):
    assert set(record) == {"key", "count"}
    return {"twice": 2 * record["count"]}


def test_a_kill_at_any_moment_loses_no_finished_unit(photos, tmp_path):
    program = (
        "import sys, dsconvert, companion_functions as f\n"
        "schema = {'mean': dsconvert.array('float32', (3,)), 'size': 'str'}\n"
        "dsconvert.add_fields(sys.argv[1], f.slow, sys.argv[2], schema, read=['image'], version='1', unit_records=3,"
        " workers=int(sys.argv[3]), resume=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/python")}
    command = [sys.executable, "-c", program, str(photos)]
    started = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole"), "0"], check=True, env=environment)
    seconds = time.monotonic() - started
    expected, killed = files(tmp_path / "whole"), 0
    for attempt in range(6):
        out = tmp_path / f"killed-{attempt}"
        process = subprocess.Popen([*command, str(out), str(attempt % 2 * 2)], env=environment, stderr=subprocess.PIPE)
        try:
            process.communicate(timeout=seconds * (attempt + 3) / 9)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            # Returns when its workers have ended, too.
            process.communicate()
            killed += 1
        subprocess.run([*command, str(out), "0"], check=True, env=environment)
        assert files(out) == expected, attempt
    assert killed
