"""`dsconvert.convert`: the same dataset for any workers and parts, after kills, with one outcome per item."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import convert_functions as functions
import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dsconvert

HERE = Path(__file__).parent
SCHEMA = functions.SCHEMA


def tree(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(Path(out).rglob("*")) if path.is_file()}


def rejects(out):
    return [json.loads(line) for line in (Path(out) / "rejects.jsonl").read_text().splitlines()]


def check(out, items):
    """Compares all records with what the function returns."""
    dataset = dsconvert.open(out, "train")
    found = {record["key"]: record for record in dataset}
    expected = {f"{item:09d}": made for item in items if (made := functions.record(item)) is not None}
    assert list(found) == list(expected)
    for key, made in expected.items():
        record = found[key]
        assert record["number"] == made["number"] and record["text"] == made["text"] and record["tags"] == made["tags"]
        assert record["vector"].dtype == np.float16 and (record["vector"] == made["vector"]).all()
        assert (record["frames"] is None) == (made["frames"] is None)
        assert record["frames"] is None or (record["frames"] == made["frames"]).all()
    return dataset


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The dataset of one process, to compare with."""
    out = tmp_path_factory.mktemp("whole") / "out"
    summary = dsconvert.convert(functions.record, range(100), out, SCHEMA, version="1", unit_items=9, index=["number"])
    assert (summary.committed, summary.found, summary.filtered, summary.converted) == (True, 100, 14, 86)
    return out


def test_records_are_those_that_the_function_returns(whole, command):
    dataset = check(whole, range(100))
    assert dataset.kind == "records" and dict(dataset.fields)["frames"] == "array<int16>[?,2]"
    options = json.loads((whole / "manifest.json").read_text())["options"]["convert"]
    assert options["function"] == {"name": "convert_functions.record", "parameters": {}}
    assert options["version"] == "1" and options["unit_items"] == 9 and len(options["source"]) == 64
    batch = next(iter(dsconvert.Loader(dataset, batch_size=8)))
    assert batch["vector"].shape == (8, 4) and batch["vector"].dtype == np.float16
    command("inspect", whole, "--verify")


@pytest.mark.parametrize("workers", [1, 3])
def test_the_dataset_is_the_same_for_any_workers(whole, tmp_path, workers):
    out = tmp_path / "out"
    options = {"version": "1", "unit_items": 9, "index": ["number"], "workers": workers}
    dsconvert.convert(functions.record, range(100), out, SCHEMA, **options)
    assert tree(out) == tree(whole)


def test_parts_make_the_same_dataset(whole, tmp_path):
    out = tmp_path / "out"
    options = {"version": "1", "unit_items": 9, "index": ["number"]}
    done = [
        dsconvert.convert(functions.record, range(100), out, SCHEMA, part=(number, 3), **options)
        for number in (2, 3, 1)
    ]
    assert [summary.committed for summary in done] == [False, False, True]
    assert sum(summary.found for summary in done) == 100
    assert tree(out) == tree(whole)


def test_parts_at_the_same_time_make_the_same_dataset(whole, tmp_path):
    out = tmp_path / "out"
    program = (
        "import sys, convert_functions as f, dsconvert\n"
        "s = dsconvert.convert(f.record, range(100), sys.argv[1], f.SCHEMA, version='1', unit_items=9,"
        " index=['number'], part=(int(sys.argv[2]), 3))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, out, str(number)], cwd=HERE) for number in (1, 2, 3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert tree(out) == tree(whole)


def test_batches_do_not_cross_units(tmp_path):
    options = {"version": "1", "unit_items": 10}
    for name, size in (("one", None), ("batch", 4)):
        function = functions.record if size is None else functions.records
        dsconvert.convert(function, range(50), tmp_path / name, SCHEMA, batch_size=size, **options)
        check(tmp_path / name, range(50))
    shards = [
        {path: bytes for path, bytes in tree(tmp_path / name).items() if "/" in path} for name in ("one", "batch")
    ]
    assert shards[0] == shards[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_kills_lose_nothing_that_is_finished(tmp_path, workers, monkeypatch):
    whole = tmp_path / "whole"
    monkeypatch.setenv("DSCONVERT_TEST_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("DSCONVERT_TEST_KILL_AT", "1000")
    dsconvert.convert(functions.kills, range(60), whole, SCHEMA, version="1", unit_items=6)
    program = (
        "import sys, convert_functions as f, dsconvert\n"
        "if __name__ == '__main__':\n"
        "    dsconvert.convert(f.kills, range(60), sys.argv[1], f.SCHEMA, version='1', unit_items=6,"
        f" workers={workers}, resume=True)\n"
    )
    script, out, finished = tmp_path / "program.py", tmp_path / "out", [0]
    script.write_text(program)
    while True:
        # At the 14th call, one of two processes has begun its second unit at least.
        calls = tmp_path / f"calls-{len(finished)}"
        monkeypatch.setenv("DSCONVERT_TEST_CALLS", str(calls))
        monkeypatch.setenv("DSCONVERT_TEST_KILL_AT", "14")
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        # Returns when all processes have closed stderr: workers end with the process that started them.
        ran = subprocess.run([sys.executable, script, out], env=environment, capture_output=True, text=True)
        if ran.returncode != -signal.SIGKILL:
            break
        assert not (out / "manifest.json").exists()
        finished.append(len(list(out.glob(".dsconvert/units/*/done"))))
    assert ran.returncode == 0, ran.stderr
    assert len(finished) > 4 and sorted(set(finished)) == finished, finished
    assert calls.stat().st_size <= 60 - 6 * finished[-1]
    assert tree(out) == tree(whole)


def test_exceptions_and_rejects_are_listed_with_type_and_message(tmp_path):
    out = tmp_path / "out"
    summary = dsconvert.convert(functions.rejects, range(40), out, SCHEMA, version="1", unit_items=7, max_rejects="50%")
    assert (summary.converted, summary.rejected) == (24, 16)
    by_origin = {reject["origin"]: (reject["code"], reject["message"]) for reject in rejects(out)}
    assert by_origin["000000004"] == ("function-failed", "ValueError: item 4 is bad")
    assert by_origin["000000005"] == ("function-rejected", "not wanted")
    assert by_origin["000000006"] == (
        "wrong-type",
        "field 'vector' is of type array<float16>[4], not of float32[4]",
    )
    assert by_origin["000000007"] == ("missing-field", "field 'text' is missing; expected string")
    with pytest.raises(dsconvert.NotCommittedError, match="max_rejects|rejected"):
        dsconvert.convert(functions.rejects, range(40), tmp_path / "strict", SCHEMA, version="1")


@pytest.mark.parametrize("workers", [0, 2])
def test_only_the_culprit_of_a_batch_is_rejected(tmp_path, workers):
    out = tmp_path / "out"
    options = {"version": "1", "unit_items": 32, "batch_size": 16, "workers": workers}
    dsconvert.convert(functions.culprits, range(64), out, SCHEMA, **options)
    assert [reject["origin"] for reject in rejects(out)] == ["000000013", "000000014", "000000040"]
    assert rejects(out)[0]["message"] == "RuntimeError: 1 bad items"
    assert len(dsconvert.open(out, "train")) == 61
    assert json.loads((out / "manifest.json").read_text())["options"]["convert"]["after_exception"] == "halves"


@pytest.mark.parametrize("function, what", [
    ("dies", r"a worker ended with status 7 in unit 3, items 30 to 39"),
    ("gone", r"unit 3, item 30: FileNotFoundError: x.wav"),
])
def test_a_failure_of_the_machine_stops_the_run_which_can_be_resumed(tmp_path, monkeypatch, function, what):
    out, fn = tmp_path / "out", getattr(functions, function)
    monkeypatch.setenv("DSCONVERT_TEST_DIES", "1")
    options = {"version": "1", "unit_items": 10, "workers": 1}
    with pytest.raises(dsconvert.NotCommittedError, match=what) as raised:
        dsconvert.convert(fn, range(60), out, SCHEMA, **options)
    assert "resume=True" in raised.value.remedy
    assert not (out / "manifest.json").exists()
    monkeypatch.delenv("DSCONVERT_TEST_DIES")
    summary = dsconvert.convert(fn, range(60), out, SCHEMA, **options, resume=True)
    assert summary.committed and summary.found == 30, "three units were finished"
    dsconvert.convert(fn, range(60), tmp_path / "whole", SCHEMA, version="1", unit_items=10)
    assert tree(out) == tree(tmp_path / "whole")


@pytest.mark.parametrize("workers", [0, 1])
def test_too_little_memory_is_no_reject(tmp_path, monkeypatch, workers):
    monkeypatch.setenv("DSCONVERT_TEST_DIES", "1")
    options = {"version": "1", "unit_items": 20, "batch_size": 8, "workers": workers}
    with pytest.raises(dsconvert.NotCommittedError, match=r"unit 1, items 28 to 35: RuntimeError: CUDA out of memory"):
        dsconvert.convert(functions.out_of_memory, range(60), tmp_path / "out", SCHEMA, **options)


def test_too_few_results_stop_the_run(tmp_path):
    with pytest.raises(dsconvert.NotCommittedError, match=r"fn returned 3 results for a batch of 4 items"):
        dsconvert.convert(functions.too_few, range(8), tmp_path / "out", SCHEMA, version="1", batch_size=4)


def test_a_function_may_print_and_fork(tmp_path, capfd):
    dsconvert.convert(functions.prints, range(5), tmp_path / "prints", SCHEMA, version="1", workers=1)
    assert capfd.readouterr().out == "a line on stdout\n" * 5
    dsconvert.convert(functions.forks, range(9), tmp_path / "forks", SCHEMA, version="1", workers=1)
    assert len(dsconvert.open(tmp_path / "forks", "train")) == 9


def test_what_other_processes_cannot_have_is_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(dsconvert.UsageError, match="cannot be sent to another process") as raised:
        dsconvert.convert(lambda item: None, range(9), out, SCHEMA, version="1", workers=1)
    assert "move fn to a module" in raised.value.remedy
    with pytest.raises(dsconvert.UsageError, match="parameters of Unpicklable are not JSON"):
        dsconvert.convert(functions.Unpicklable(), range(9), out, SCHEMA, version="1", workers=1)
    assert not out.exists()
    dsconvert.convert(lambda item: functions.record_of(item), range(9), out, SCHEMA, version="1")


def test_a_resumed_run_names_what_differs(tmp_path):
    out = tmp_path / "out"
    dsconvert.convert(functions.Scaled(2), range(30), out, SCHEMA, version="1", unit_items=9, part=(1, 2))
    cases = {
        "version": ({"version": "2"}, '"1", not "2"'),
        "function": ({"fn": functions.Scaled(3)}, r'"scale": 2.*not .*"scale": 3'),
        "schema": ({"schema": {"number": "uint32"}}, "float16"),
        "inputs": ({"inputs": range(31)}, '"items": 30.*"items": 31'),
        "batch_size": ({"batch_size": 3}, "null, not 3"),
        "unit_items": ({"unit_items": 8}, "9, not 8"),
    }
    same = {"fn": functions.Scaled(2), "inputs": range(30), "schema": SCHEMA, "version": "1", "unit_items": 9}
    for state in ("planned", "committed"):
        for name, (change, values) in cases.items():
            options = {**same, **change}
            fn, inputs, schema = (options.pop(key) for key in ("fn", "inputs", "schema"))
            with pytest.raises(dsconvert.UsageError, match=f"made with another {name}: .*{values}"):
                dsconvert.convert(fn, inputs, out, schema, resume=True, **options)
        if state == "planned":
            dsconvert.convert(functions.Scaled(2), range(30), out, SCHEMA, version="1", unit_items=9, resume=True)
    again = dsconvert.convert(functions.Scaled(2), range(30), out, SCHEMA, version="1", unit_items=9, resume=True)
    assert again.committed and again.found == 0
    with pytest.raises(dsconvert.UsageError, match="not empty|already"):
        dsconvert.convert(functions.Scaled(2), range(30), out, SCHEMA, version="1", unit_items=9)
    dsconvert.convert(functions.Scaled(5), range(30), out, SCHEMA, version="1", unit_items=9, overwrite=True)
    assert dsconvert.open(out, "train")[0]["vector"][0] == 5


def test_another_source_of_the_function_is_a_warning(tmp_path, monkeypatch):
    options = {"version": "1", "unit_items": 9}
    dsconvert.convert(functions.record, range(30), tmp_path / "out", SCHEMA, part=(1, 2), **options)
    monkeypatch.setattr("dsconvert.records.function.Function.source_digest", lambda self: "0" * 64)
    with pytest.warns(UserWarning, match="source of fn has changed"):
        dsconvert.convert(functions.record, range(30), tmp_path / "out", SCHEMA, resume=True, **options)


def test_an_object_is_made_ready_once_per_worker(tmp_path):
    log = tmp_path / "log"
    dsconvert.convert(
        functions.Scaled(2, str(log)), range(60), tmp_path / "out", SCHEMA, version="1", unit_items=5, workers=2
    )
    assert len(log.read_text().splitlines()) == 2
    assert (dsconvert.open(tmp_path / "out", "train")[7]["vector"] == 2).all()


def test_a_second_attempt_that_differs_is_discarded_and_counted(tmp_path):
    out = tmp_path / "out"
    dsconvert.convert(functions.once, range(20), out, SCHEMA, version="1", unit_items=10, part=(1, 2))
    program = (
        "import sys, convert_functions as f, dsconvert\n"
        # The first unit was finished after this process had looked.
        "dsconvert.convert.__globals__['_todo'] = lambda work, number, parts: [0, 1]\n"
        "s = dsconvert.convert(f.once, range(20), sys.argv[1], f.SCHEMA, version='1', unit_items=10, resume=True)\n"
        "print(s.discarded_units, s.committed)\n"
    )
    made = subprocess.run([sys.executable, "-c", program, out], cwd=HERE, capture_output=True, text=True, check=True)
    assert made.stdout == "1 True\n"
    texts = [record["text"] for record in dsconvert.open(out, "train")]
    assert texts[0] == str(os.getpid()) and texts[-1] != texts[0]


def test_workers_have_one_gpu_each(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    schema = {"number": "uint32", "device": "str"}
    dsconvert.convert(functions.device, range(40), tmp_path / "out", schema, version="1", unit_items=1, workers="cuda")
    seen = {record["device"] for record in dsconvert.open(tmp_path / "out", "train")}
    assert seen <= {"GPU-a", "GPU-b"} and seen
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(dsconvert.UsageError, match="there is no GPU"):
        dsconvert.convert(functions.device, range(40), tmp_path / "none", schema, version="1", workers="cuda")


def test_inputs_may_be_a_generator_a_table_a_split_or_a_dataset(tmp_path):
    schema = {"n": "int64", "name": "str"}

    def numbers(item):
        return {"n": item["n"], "name": item["name"]}

    rows = [{"n": at, "name": f"row {at}"} for at in range(25)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, pa.Table.from_pylist(rows).schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows))
    dsconvert.convert(numbers, rows, tmp_path / "list", schema, version="1", unit_items=10)
    inputs = {
        "generator": (row for row in rows),
        "parquet": tmp_path / "t.parquet",
        "arrow": tmp_path / "t.arrow",
        "hf": datasets.Dataset.from_list(rows),
        "split": dsconvert.open(tmp_path / "list", "train"),
    }
    for name, given in inputs.items():
        dsconvert.convert(numbers, given, tmp_path / name, schema, version="1", unit_items=10)
        assert [dict(record) for record in dsconvert.open(tmp_path / name, "train")] == [
            {"key": f"{at:09d}", **row} for at, row in enumerate(rows)
        ]
    # Another process resumes a generator if it yields the same items.
    options = {"version": "1", "unit_items": 10}
    dsconvert.convert(numbers, iter(rows), tmp_path / "again", schema, part=(1, 2), **options)
    with pytest.raises(dsconvert.UsageError, match="another inputs"):
        dsconvert.convert(numbers, iter(rows[1:] + rows[:1]), tmp_path / "again", schema, resume=True, **options)
    assert dsconvert.convert(numbers, iter(rows), tmp_path / "again", schema, resume=True, **options).committed


def test_arrays_of_torch_and_numpy_are_stored_exactly(tmp_path):
    schema = {
        "b": dsconvert.array("bfloat16", (2, None)),
        "f": dsconvert.array(torch.float16, (None,)),
        "d": dsconvert.array("float64", ()),
        "ids": "ids",
        "image": "image",
        "pages": "list[image]",
        "state": "json",
        "ok": "bool",
    }
    from PIL import Image

    picture = Image.new("RGB", (3, 2), (9, 8, 7))
    b = torch.randn(2, 5).to(torch.bfloat16)

    def fn(item):
        return {
            "key": f"k{item}",
            "b": b if item else b.view(torch.uint16).numpy(),
            "f": np.array([1, 2, 3], ">f2").astype(np.float16),
            "d": 0.1,
            "ids": torch.tensor([1, 70_000]),
            "image": picture,
            "pages": [picture, b"\xff\xd8"],
            "state": {"x": [1, None]},
            "ok": np.bool_(True),
        }

    dsconvert.convert(fn, range(3), tmp_path / "out", schema, version="1")
    for record in dsconvert.open(tmp_path / "out", "train"):
        assert (record["b"] == b.view(torch.uint16).numpy()).all()
        assert record["f"].tolist() == [1, 2, 3] and record["d"][()] == 0.1 and record["ids"].tolist() == [1, 70_000]
        assert record["image"].startswith(b"\x89PNG") and record["pages"][1] == b"\xff\xd8"
        assert json.loads(record["state"]) == {"x": [1, None]} and record["ok"] is True


@pytest.mark.parametrize("schema, record, message", [
    ({"n": "uint32"}, {"n": float("nan")}, r'field "n" is of type uint32, not of float'),
    ({"n": "uint32"}, {"n": -1}, r'field "n" is of type uint32, not of int'),
    ({"n": "uint32"}, {"n": 1 << 40}, r'field "n" holds 1099511627776; expected required uint32'),
    ({"n": "bool"}, {"n": 1}, r'field "n" is of type bool, not of int'),
    ({"n": "str"}, {"n": b"a"}, r'field "n" is of type string, not of bytes'),
    ({"n": "str"}, {"n": "a", "m": 1}, r"no field 'm'; its fields are key, n"),
    ({"n": "str"}, {"n": "a", "key": 3}, r"field 'key' is of type string, not of int"),
    ({"n": "json"}, {"n": {"x": float("nan")}}, r"field 'n' is not JSON"),
    ({"n": "json"}, {"n": "{"}, r'field "n" holds text that is not JSON'),
    ({"n": "ids"}, {"n": [1, -1]}, r"field 'n' has a number outside 0 to 4294967295"),
    ({"n": "ids"}, {"n": [0.5]}, r"field 'n' is of type ids<u32>, not of float64\[1\]"),
    ({"n": "list[str]"}, {"n": "abc"}, r'field "n" is of type list<string>, not of str'),
    ({"n": "list[image]"}, {"n": [3]}, r'field "n" is of type list<image>, not of list'),
    ({"n": dsconvert.array("float32", (2,))}, {"n": np.zeros(3, np.float32)}, r"not of float32\[3\]"),
    ({"n": dsconvert.array("float32", (2,))}, {"n": ["a", "b"]}, r"array<float32>\[2\]"),
    ({"n": dsconvert.array("bfloat16", (2,))}, {"n": np.zeros(2, np.float32)}, r"not of float32\[2\]"),
    ({"n": "str"}, [1], r"a record is a dictionary, not int"),
    ({"n": "str"}, 7, r"a record is a dictionary, not int"),
])
def test_a_record_of_another_schema_is_a_reject(tmp_path, schema, record, message):
    index = ["n"] if schema["n"] == "uint32" else []
    good = {"uint32": 1, "bool": True, "str": "a", "json": {}, "ids": [1], "list[str]": ["a"], "list[image]": [b"a"]}
    value = good.get(schema["n"], np.zeros(2, np.uint16 if "bfloat16" in schema["n"] else np.float32))

    def fn(item):
        return record if item == 4 else {"n": value}

    dsconvert.convert(fn, range(20), tmp_path / "out", schema, version="1", index=index)
    [reject] = rejects(tmp_path / "out")
    import re

    assert reject["origin"] == "000000004" and re.search(message, reject["message"]), reject


def test_several_records_of_an_item_have_keys_of_their_own(tmp_path):
    def fn(item):
        return [{"n": at} for at in range(item)]

    dsconvert.convert(fn, range(4), tmp_path / "out", {"n": "int64"}, version="1")
    dataset = dsconvert.open(tmp_path / "out", "train")
    assert [record["key"] for record in dataset] == [
        "000000001#0", "000000002#0", "000000002#1", "000000003#0", "000000003#1", "000000003#2",
    ]


def test_two_records_with_one_key_are_refused(tmp_path):
    with pytest.raises(
        dsconvert.NotCommittedError, match='two items have the key "same".*record 0 of unit 0 and record 1'
    ):
        dsconvert.convert(
            lambda item: {"key": "same", "n": item}, range(2), tmp_path / "out", {"n": "int64"}, version="1"
        )


@pytest.mark.parametrize("options, message", [
    ({"version": ""}, "version is ''"),
    ({"version": "1", "workers": -1}, "workers is -1"),
    ({"version": "1", "batch_size": 0}, "batch_size is 0"),
    ({"version": "1", "unit_items": 0}, "unit_items is 0"),
    ({"version": "1", "part": (3, 2)}, r"part is \(3, 2\)"),
    ({"version": "1", "format": "msgpack"}, "msgpack"),
    ({"version": "1", "max_rejects": "many"}, "max_rejects"),
    ({"version": "1", "resume": True, "overwrite": True}, "contradict"),
    ({"version": "1", "schema": {"a": "float31"}}, "unknown type 'float31'"),
    ({"version": "1", "schema": {}}, "a schema is a dictionary"),
    ({"version": "1", "inputs": []}, "inputs has no items"),
    ({"version": "1", "inputs": 3}, "which has no items"),
    ({"version": "1", "index": ["vector"]}, "cannot be a column of the record index"),
])
def test_bad_options_are_refused(tmp_path, options, message):
    options = {"inputs": range(3), "schema": SCHEMA, **options}
    inputs, schema = options.pop("inputs"), options.pop("schema")
    with pytest.raises(dsconvert.UsageError, match=message):
        dsconvert.convert(functions.record, inputs, tmp_path / "out", schema, **options)
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_full_disk_stops_the_run_which_can_be_resumed(tmp_path, workers):
    """The limit on the size of files stands for a full disk: writes fail in the middle of a shard."""
    program = (
        "import resource, sys, convert_functions as f, dsconvert\n"
        "if __name__ == '__main__':\n"
        "    if len(sys.argv) > 2:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "    dsconvert.convert(f.Large(4096), range(40), sys.argv[1], f.LARGE, version='1', unit_items=10,"
        f" workers={workers}, resume=True)\n"
    )
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    run = lambda *args: subprocess.run([sys.executable, script, out, *args], env=environment, capture_output=True, text=True)  # noqa: E731
    failed = run("limited")
    assert failed.returncode != 0 and "NotCommittedError: unit 0, item" in failed.stderr, failed.stderr
    assert "File too large" in failed.stderr and "resume=True" in failed.stderr
    assert not (out / "manifest.json").exists()
    assert run().returncode == 0
    dsconvert.convert(functions.Large(4096), range(40), tmp_path / "whole", functions.LARGE, version="1", unit_items=10)
    assert tree(out) == tree(tmp_path / "whole")


def test_ctrl_c_twice_ends_all_processes(tmp_path):
    out = tmp_path / "out"
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, convert_functions as f, dsconvert\n"
        "if __name__ == '__main__':\n"
        "    dsconvert.convert(f.slow, range(6000), sys.argv[1], f.SCHEMA, version='1', unit_items=20, workers=2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen(
        [sys.executable, script, out], env=environment, start_new_session=True, stderr=subprocess.PIPE
    )
    while not list(out.glob(".dsconvert/units/*/*")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0 and b"KeyboardInterrupt" in stderr
    with pytest.raises(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    assert not (out / "manifest.json").exists()
    # The lock is free.
    dsconvert.convert(functions.slow, range(60), out, SCHEMA, version="1", unit_items=20, overwrite=True)
