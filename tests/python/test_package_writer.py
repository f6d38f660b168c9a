"""`dsconvert.Writer`: a dataset that is committed whole at the end of a `with` statement, or not at all."""

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import convert_functions as functions
import datasets
import duckdb
import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dsconvert

HERE = Path(__file__).parent
SCHEMA = functions.SCHEMA
ITEMS = [item for item in range(100) if functions.record(item) is not None]


def tree(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(Path(out).rglob("*")) if path.is_file()}


def same_bytes(one, other):
    """Compares everything but the manifests, which say how the records were made."""
    one, other = tree(one), tree(other)
    assert one.pop("manifest.json") and other.pop("manifest.json")
    assert one == other


def write(out, items=ITEMS, **options):
    with dsconvert.Writer(out, SCHEMA, **options) as writer:
        for item in items:
            writer.write(functions.record(item), key=f"{item:09d}")


def test_the_bytes_are_those_of_convert_with_one_unit(tmp_path, command):
    write(tmp_path / "written", index=["number"], shard_bytes=2000)
    options = {"version": "1", "unit_items": 1000, "index": ["number"], "shard_bytes": 2000}
    dsconvert.convert(functions.record, ITEMS, tmp_path / "other", SCHEMA, **options)
    keyed = lambda item: {**functions.record(item), "key": f"{item:09d}"}  # noqa: E731
    dsconvert.convert(keyed, ITEMS, tmp_path / "converted", SCHEMA, **options)
    same_bytes(tmp_path / "written", tmp_path / "converted")
    assert len(list((tmp_path / "written/train").iterdir())) > 1
    dataset = dsconvert.open(tmp_path / "written", "train")
    assert [record["key"] for record in dataset] == [f"{item:09d}" for item in ITEMS]
    assert list(dataset.index_column("number")) == ITEMS
    command("inspect", tmp_path / "written", "--verify")
    options = json.loads((tmp_path / "written/manifest.json").read_text())["options"]["writer"]
    assert options["fields"]["frames"] == "array<int16>[?,2]?" and options["index"] == ["number"]


def test_keys_are_numbers_unless_named_and_splits_have_the_records_written_to_them(tmp_path):
    with dsconvert.Writer(tmp_path / "out", {"n": "int32"}, splits=["train", "test"]) as writer:
        for n in range(6):
            writer.write({"n": n}, split="test" if n % 3 == 0 else "train")
        writer.write({"key": "own", "n": 6}, split="test")
        writer.write({"n": 7}, key="given", split="test")
        assert writer.records == 8 and "open, 8 records" in repr(writer)
        with pytest.raises(dsconvert.UsageError, match="split is missing; the splits are train, test"):
            writer.write({"n": 8})
        with pytest.raises(dsconvert.UsageError, match="no split 'dev'"):
            writer.write({"n": 8}, split="dev")
        with pytest.raises(dsconvert.UsageError, match="has the key 'a', and key is 'b'"):
            writer.write({"key": "a", "n": 8}, key="b", split="test")
    found = {name: [(r["key"], r["n"]) for r in dsconvert.open(tmp_path / "out", name)] for name in ("train", "test")}
    assert found["train"] == [(f"{n:09d}", n) for n in (1, 2, 4, 5)]
    assert found["test"] == [("000000000", 0), ("000000003", 3), ("own", 6), ("given", 7)]


@pytest.mark.parametrize(
    "schema, record, message",
    [
        ({"x": "float32"}, {"x": "1"}, "field \"x\" is of type float32, not of str"),
        ({"x": "int32"}, {"x": 2**31}, "field \"x\" holds 2147483648; expected required int32"),
        ({"x": "int32"}, {}, "field 'x' is missing; expected int32"),
        ({"x": "int32"}, {"x": 1, "y": 2}, "the schema has no field 'y'; its fields are key, x"),
        ({"x": "int32"}, [1], "a record is a dictionary, not list"),
        (
            {"x": dsconvert.array("float16", (2, None))},
            {"x": np.zeros((2, 3), np.float32)},
            "field 'x' is of type array<float16>[2,?], not of float32[2, 3]",
        ),
        ({"x": dsconvert.array("bfloat16", (2,))}, {"x": torch.zeros(2)}, "type array<bfloat16>[2], not of float32[2]"),
    ],
)
def test_a_record_of_another_schema_is_refused_and_the_others_are_committed(tmp_path, schema, record, message):
    good = {
        "float32": 1.5, "int32": 1, "array<float16>[2,?]": np.zeros((2, 1), np.float16),
        "array<bfloat16>[2]": np.ones(2, ml_dtypes.bfloat16),
    }[schema["x"]]
    with dsconvert.Writer(tmp_path / "out", schema) as writer:
        writer.write({"x": good})
        with pytest.raises(dsconvert.UsageError) as raised:
            writer.write(record)
        assert message in str(raised.value), raised.value
        writer.write({"x": good})
    assert len(dsconvert.open(tmp_path / "out", "train")) == 2


def test_nothing_is_committed_after_an_exception_and_nothing_is_left(tmp_path):
    for number, failure in enumerate([ValueError, KeyboardInterrupt, SystemExit, dsconvert.UsageError, GeneratorExit]):
        out = tmp_path / f"{number}/out"
        with pytest.raises(failure, match="mine"), dsconvert.Writer(out, SCHEMA, shard_bytes=500) as writer:
            for item in ITEMS:
                writer.write(functions.record(item))
            raise failure("mine")
        assert not out.exists(), tree(out)
        with pytest.raises(dsconvert.UsageError, match="closed"):
            writer.write(functions.record(0))
    # A directory that existed stays.
    out = tmp_path / "existed"
    out.mkdir()
    with pytest.raises(ValueError, match="mine"), dsconvert.Writer(out, SCHEMA) as writer:
        raise ValueError("mine")
    assert list(out.iterdir()) == []
    write(out)


def test_what_is_dropped_is_not_committed(tmp_path):
    def records(out):
        with dsconvert.Writer(out, SCHEMA) as writer:
            while True:
                writer.write(functions.record(0))
                yield

    abandoned = records(tmp_path / "generator")
    next(abandoned)
    del abandoned
    writer = dsconvert.Writer(tmp_path / "del", SCHEMA).__enter__()
    writer.write(functions.record(0))
    assert (tmp_path / "del/.dsconvert").exists()
    del writer
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError", "os._exit(4)", "os.kill(os.getpid(), 9)"])
def test_the_end_of_the_process_commits_nothing(tmp_path, end):
    out = tmp_path / "out"
    program = (
        "import os, sys, convert_functions as f, dsconvert\n"
        "writer = dsconvert.Writer(sys.argv[1], f.SCHEMA).__enter__()\n"
        "writer.write(f.record(0))\n" + end
    )
    subprocess.run([sys.executable, "-c", program, out], cwd=HERE, capture_output=True)
    assert not (out / "manifest.json").exists()
    killed = end.startswith("os.")
    assert out.exists() == killed
    if killed:
        with pytest.raises(dsconvert.UsageError, match="a run into this directory has not finished"):
            write(out)
    write(out, overwrite=True)
    write(tmp_path / "whole")
    assert tree(out) == tree(tmp_path / "whole")


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.sampled("faults", one_in=50))])
def test_a_kill_at_any_record_leaves_no_dataset(tmp_path, kills):
    """The process stops itself after a number of records, so that nothing depends on time; the last kills hit the commit."""
    program = (
        "import os, signal, sys, convert_functions as f, dsconvert\n"
        "with dsconvert.Writer(sys.argv[1], f.SCHEMA, shard_bytes=1000, overwrite=True) as writer:\n"
        "    for item in range(int(sys.argv[2])):\n"
        "        writer.write(f.record_of(item))\n"
        "    if len(sys.argv) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    out = tmp_path / "out"
    for kill in range(kills):
        done = subprocess.run([sys.executable, "-c", program, out, str(kill * 60 // kills)], cwd=HERE)
        assert done.returncode == -signal.SIGKILL
        assert not (out / "manifest.json").exists()
        with pytest.raises(dsconvert.Error):
            dsconvert.open(out)
    subprocess.run([sys.executable, "-c", program, out, "60", "to the end"], cwd=HERE, check=True)
    with dsconvert.Writer(tmp_path / "whole", SCHEMA, shard_bytes=1000) as writer:
        for item in range(60):
            writer.write(functions.record_of(item))
    assert tree(out) == tree(tmp_path / "whole")


def test_ctrl_c_commits_nothing(tmp_path):
    out = tmp_path / "out"
    program = (
        "import itertools, sys, convert_functions as f, dsconvert\n"
        "with dsconvert.Writer(sys.argv[1], f.SCHEMA) as writer:\n"
        "    for item in itertools.count():\n"
        "        writer.write(f.record_of(item))\n"
        "        if item == 100:\n"
        "            print('started', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, out], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0 and b"KeyboardInterrupt" in stderr
    assert not out.exists()


FORKED = """
import os, sys, convert_functions as f, dsconvert
with dsconvert.Writer(sys.argv[1], f.SCHEMA) as writer:
    for item in range(10):
        writer.write(f.record_of(item))
    if (child := os.fork()) == 0:
        if sys.argv[2] == "write":
            try:
                writer.write(f.record_of(10))
            except dsconvert.UsageError as error:
                assert "forked" in str(error), error
                sys.exit(0)
            os._exit(1)
        if sys.argv[2] == "raise":
            raise ValueError("the child's own")
        # "end": the child leaves the statement, too.
    else:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == (0 if sys.argv[2] == "write" else 1), status
        for item in range(10, 20):
            writer.write(f.record_of(item))
"""


@pytest.mark.parametrize("way", ["write", "raise", "end"])
def test_a_forked_process_neither_writes_nor_commits_nor_removes(tmp_path, way):
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", FORKED, out, way], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with dsconvert.Writer(tmp_path / "whole", SCHEMA) as writer:
        for item in range(20):
            writer.write(functions.record_of(item))
    assert tree(out) == tree(tmp_path / "whole")


def test_an_output_that_exists_is_refused_or_replaced(tmp_path):
    out = tmp_path / "out"
    write(out)
    before = tree(out)
    with pytest.raises(dsconvert.UsageError, match="a dataset already exists.*\n?.*overwrite"):
        write(out)
    assert tree(out) == before
    write(out, ITEMS[:5], overwrite=True)
    assert len(dsconvert.open(out, "train")) == 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(dsconvert.UsageError):
            write(tmp_path / "other", **options)
    assert tree(tmp_path / "other") == {"file": b"mine"}


def test_what_is_wrong_with_the_whole_is_refused(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(dsconvert.UsageError, match="use it in a with statement"):
        dsconvert.Writer(out, SCHEMA).write(functions.record(0))
    for options, message in [
        ({"splits": "train"}, "not a list of names"),
        ({"splits": ["a", "a"]}, "their names differ"),
        ({"splits": ["a/b"]}, "a/b"),
        ({"index": ["text"]}, "text"),
        ({"format": "msgpack"}, "msgpack"),
        ({"scratch": tmp_path}, "scratch"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            write(out, **options)
    with pytest.raises(dsconvert.NotCommittedError), dsconvert.Writer(out, SCHEMA):
        pass
    with pytest.raises(dsconvert.NotCommittedError, match="two items have the key \"twice\""), dsconvert.Writer(out, SCHEMA) as writer:
        for _ in range(2):
            writer.write(functions.record(0), key="twice")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="belongs to one process"):
        pickle.dumps(dsconvert.Writer(out, SCHEMA))


FULL = """
import resource, sys, numpy as np, dsconvert
with dsconvert.Writer(sys.argv[1], {"x": dsconvert.array("float32", (None,))}) as writer:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    for n in range(40):
        try:
            writer.write({"x": np.full(1 << 18, n, np.float32)})
        except dsconvert.Error as error:
            print(type(error).__name__, error, file=sys.stderr)
            if sys.argv[2] == "raise":
                raise
"""


@pytest.mark.parametrize("way", ["raise", "caught"])
def test_a_full_disk_commits_nothing_even_if_the_exception_is_caught(tmp_path, way):
    """The limit on the size of files stands for a full disk: writes fail in the middle of a shard."""
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", FULL, out, way], capture_output=True, text=True)
    assert done.returncode != 0 and "IoError" in done.stderr and "File too large" in done.stderr, done.stderr
    assert ("NotCommittedError: nothing was committed" in done.stderr) == (way == "caught")
    assert not out.exists()


TYPES = {
    "number": "int64?",
    "score": "float32",
    "text": "str",
    "label": "str",
    "extra": "json?",
    "vector": dsconvert.array("float32", (3,)),
    "grid": dsconvert.array("int16", (None, 2), nullable=True),
    "ids": "ids",
    "tags": "list[str]",
}


def table(rows=50):
    return pa.table(
        {
            "key": pa.array([f"k{n}" for n in range(rows)], pa.large_string()),
            "number": pa.array([None if n % 4 == 0 else n for n in range(rows)], pa.int16()),
            "score": pa.array([n / 8 for n in range(rows)], pa.float64()),
            "text": pa.array([f"text {n}" for n in range(rows)], pa.string_view()),
            "label": pa.array([f"label {n % 3}" for n in range(rows)]).dictionary_encode(),
            "extra": pa.array([None if n % 5 == 0 else {"a": n, "b": [n]} for n in range(rows)]),
            "vector": pa.array([[n, n + 1, n + 2] for n in range(rows)], pa.list_(pa.float32(), 3)),
            "grid": pa.array(
                [None if n % 7 == 0 else [[i, n] for i in range(n % 4)] for n in range(rows)],
                pa.large_list(pa.list_(pa.int16(), 2)),
            ),
            "ids": pa.array([list(range(n % 6)) for n in range(rows)], pa.list_(pa.uint32())),
            "tags": pa.array([["x"] * (n % 3) for n in range(rows)], pa.list_(pa.string())),
        }
    )


def check_table(out, rows=50):
    dataset = dsconvert.open(out, "train")
    assert len(dataset) == rows
    for n, record in enumerate(dataset):
        assert (record["key"], record["number"]) == (f"k{n}", None if n % 4 == 0 else n)
        assert (record["score"], record["text"], record["label"]) == (n / 8, f"text {n}", f"label {n % 3}")
        assert record["extra"] is None if n % 5 == 0 else json.loads(record["extra"]) == {"a": n, "b": [n]}
        assert record["vector"].dtype == np.float32 and list(record["vector"]) == [n, n + 1, n + 2]
        expected = None if n % 7 == 0 else np.array([[i, n] for i in range(n % 4)], np.int16).reshape(-1, 2)
        assert (record["grid"] is None) == (expected is None)
        assert expected is None or record["grid"].shape == expected.shape and (record["grid"] == expected).all()
        assert list(record["ids"]) == list(range(n % 6)) and list(record["tags"]) == ["x"] * (n % 3)


def polars_frame():
    return pl.DataFrame(table().set_column(3, "text", table()["text"].cast(pa.large_string())))


def duckdb_relation():
    found = table().set_column(3, "text", table()["text"].cast(pa.string()))  # noqa: F841
    return duckdb.sql("select * from found")


TABLES = {
    "pyarrow table": table,
    "pyarrow batch": lambda: table().combine_chunks().to_batches()[0],
    "pyarrow reader": lambda: table().to_reader(max_chunksize=7),
    "polars": polars_frame,
    "duckdb": duckdb_relation,
    "datasets": lambda: datasets.Dataset(polars_frame().to_arrow()).data.table,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_written_through_the_arrow_interface(tmp_path, name):
    with dsconvert.Writer(tmp_path / "out", TYPES) as writer:
        writer.write_batch(TABLES[name]())
    check_table(tmp_path / "out")


def test_columns_of_arrays_tensors_and_lists_are_written(tmp_path):
    schema = {
        "a": dsconvert.array("float16", (2,)), "b": dsconvert.array("bfloat16", (2,)), "c": "str", "d": "int32", "e": "bool",
    }
    a, b = np.arange(12, dtype=np.float16).reshape(6, 2), torch.arange(12).reshape(6, 2).to(torch.bfloat16)
    columns = {"a": a, "b": b, "c": list("uvwxyz"), "d": pd.Series(range(6), index=range(10, 16)), "e": a[:, 0] > 3}
    with dsconvert.Writer(tmp_path / "out", schema) as writer:
        for start in (0, 4):
            writer.write_batch({name: column[start : start + 4] for name, column in columns.items()})
        with pytest.raises(dsconvert.UsageError, match="the columns differ in length: a 6, b 5"):
            writer.write_batch({"a": a, "b": b[1:]})
        with pytest.raises(dsconvert.UsageError, match="the column 'c' is of type str"):
            writer.write_batch({"c": "uvwxyz"})
        with pytest.raises(dsconvert.UsageError, match="not list"):
            writer.write_batch([{"a": 1}])
    found = list(dsconvert.open(tmp_path / "out", "train"))
    assert [record["key"] for record in found] == [f"{n:09d}" for n in range(6)]
    assert (np.stack([record["a"] for record in found]) == a).all()
    assert (np.stack([record["b"] for record in found]) == b.view(torch.uint16).numpy()).all()
    assert [(r["c"], r["d"], r["e"]) for r in found] == [("uvwxyz"[n], n, n > 1) for n in range(6)]


@pytest.mark.parametrize(
    "column, message",
    [
        (pa.array([[1.0, 2.0, 3.0]] * 3, pa.list_(pa.float64(), 3)), "array<float32>[3], not of float64[3]"),
        (pa.array([[1, 2, 3], [1, 2]], pa.list_(pa.float32())), "array<float32>[3], not of float32[2]"),
        (pa.array([[1, 2, 3], [1, None, 3]], pa.list_(pa.float32())), "a list has a null"),
        (pa.array([[1, 2, 3], None], pa.list_(pa.float32())), "field 'vector' is null; expected array<float32>[3]"),
        (pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.float32()))), "not of lists that are no array"),
        (pa.array(["abc"]), "could not convert string to float"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_the_rows_before_it_are_written(tmp_path, column, message):
    good = pa.table({"vector": pa.array([[1, 2, 3]], pa.list_(pa.float32(), 3))})
    with dsconvert.Writer(tmp_path / "out", {"vector": dsconvert.array("float32", (3,))}) as writer:
        writer.write_batch(good)
        with pytest.raises(dsconvert.UsageError) as raised:
            writer.write_batch(pa.table({"vector": column}))
        row = min(len(column) - 1, 1) if "float64" not in message else 0
        assert f"row {row} of the batch: " in str(raised.value) and message in str(raised.value), raised.value
        assert f"the {row} rows before it were written" in str(raised.value)
        assert writer.records == 1 + row


def test_shards_of_dsconvert_are_tables(tmp_path):
    schema = {"image": "image", "patches": dsconvert.array("bfloat16", (None, None, 2)), "n": "uint32"}
    png = (HERE.parents[1] / "fixtures/photos").rglob("*.png")
    content = next(png).read_bytes()
    made = [np.arange(n * 3 * 2, dtype=np.uint16).reshape(n, 3, 2) for n in range(4)]
    with dsconvert.Writer(tmp_path / "one", schema) as writer:
        writer.write_batch({"image": [content] * 4, "patches": made, "n": np.arange(4, dtype=np.uint32)})
    (shard,) = (tmp_path / "one/train").iterdir()
    with dsconvert.Writer(tmp_path / "two", schema) as writer:
        writer.write_batch(pa.ipc.open_file(shard).read_all())
    same_bytes(tmp_path / "one", tmp_path / "two")


def test_other_libraries_read_what_was_written(tmp_path):
    schema = {"vector": dsconvert.array("float32", (3,)), "text": "str"}
    vectors = np.arange(30, dtype=np.float32).reshape(10, 3)
    for fmt in ("arrow", "parquet"):
        with dsconvert.Writer(tmp_path / fmt, schema, format=fmt) as writer:
            writer.write_batch({"vector": vectors, "text": [f"t{n}" for n in range(10)]})
    (arrow,), (parquet,) = ((tmp_path / fmt / "train").iterdir() for fmt in ("arrow", "parquet"))
    assert np.stack(pq.read_table(parquet)["vector"].to_pylist()).tolist() == vectors.tolist()
    assert pl.read_parquet(parquet)["vector"].to_list() == vectors.tolist()
    assert pl.read_ipc(arrow)["text"].to_list() == [f"t{n}" for n in range(10)]
    loaded = datasets.Dataset.from_parquet(str(parquet), cache_dir=str(tmp_path / "cache"))
    assert loaded.with_format("numpy")["vector"][:].tolist() == vectors.tolist()
    assert duckdb.sql(f"select sum(vector[2]) from '{parquet}'").fetchall() == [(vectors[:, 1].sum(),)]


def test_memory_does_not_grow_with_the_records(tmp_path):
    program = (
        "import resource, sys, numpy as np, dsconvert\n"
        "x = np.zeros(1 << 18, np.uint8)\n"
        "with dsconvert.Writer(sys.argv[1], {'x': dsconvert.array('uint8', (None,))}, shard_bytes=64 << 20) as writer:\n"
        "    for n in range(int(sys.argv[2])):\n"
        "        writer.write({'x': x})\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for records in (300, 1800):
        run = [sys.executable, "-c", program, tmp_path / str(records), str(records)]
        peaks.append(int(subprocess.run(run, capture_output=True, text=True, check=True).stdout))
    # 375 MiB more were written.
    assert peaks[1] - peaks[0] < 100_000, peaks
