"""Fields of a table for the records of a dataset: compared with a join by pyarrow and dictionaries."""

import json
import random
import re
import shutil
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ROOT
from dataset import Dataset, open_arrow
from faults import Faults, some

SEED = 5


@pytest.fixture(scope="module")
def photos(dsconvert, tmp_path_factory):
    out = tmp_path_factory.mktemp("photos") / "photos"
    dsconvert("images", "fixtures/photos", "--out", out, "--resize", "shorter:24", "--split", "train=0.7,validation=0.3",
              "--shard-records", "8", "--quiet")
    return out


@pytest.fixture(scope="module")
def tokens(dsconvert, tmp_path_factory):
    out = tmp_path_factory.mktemp("tokens") / "tokens"
    dsconvert("text", "fixtures/corpus", "--out", out, "--tokenizer", "fixtures/tokenizers/bpe.json", "--quiet")
    return out


def records(path):
    """Records of a companion by split, in order."""
    dataset = Dataset(path, None)
    return {split: dataset.records(split) for split in dataset.splits}


def keys(path):
    """Keys of a dataset by split, in order."""
    dataset = Dataset(path, None)
    return {split: dataset.table(split)["key"].to_pylist() for split in dataset.splits}


def table_of(names, seed=SEED):
    """A table with a row for each of `names`, in another order."""
    shuffled = random.Random(seed).sample(names, len(names))
    draw = np.random.default_rng(seed)
    return pa.table({
        "key": shuffled,
        "score": pa.array(draw.normal(size=len(names)).astype(np.float32)),
        "rank": pa.array(range(len(names)), pa.int64()),
        "caption": [f"ein Bild von {name} ✓" for name in shuffled],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=4 * len(names)).astype(np.float16)), 4),
        "boxes": pa.array([[[i, i + 1], [2, 3]][: i % 3] for i in range(len(names))], pa.list_(pa.list_(pa.int32(), 2))),
        "tags": [[f"t{k}" for k in range(i % 4)] for i in range(len(names))],
        "meta": [{"a": i, "b": None} for i in range(len(names))],
    })


def all_of(by_split):
    return [each for split in sorted(by_split) for each in by_split[split]]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "folder"])
@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_values_are_those_of_a_join_by_key(dsconvert, photos, tmp_path, kind, form):
    by_split = keys(photos)
    surplus = ["nobody.jpg", "another.jpg"]
    table = table_of([*all_of(by_split), *surplus])
    path = tmp_path / f"scores.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=9)
    else:
        path.mkdir()
        pq.write_table(table.slice(0, 10), path / "b.parquet")
        pq.write_table(table.slice(10), path / "a.parquet")
        (path / "notes.txt").write_text("not a table")
    out = tmp_path / "scores"
    ran = dsconvert("add-fields", photos, path, "--out", out, "--format", form)
    assert "added score, rank, caption, embedding, boxes, tags, meta to" in ran.stdout
    assert "2 rows of the table belong to no record" in ran.stdout
    rows = {row["key"]: row for row in table.to_pylist()}
    found = records(out)
    assert {split: [record["key"] for record in found[split]] for split in found} == by_split
    for record in all_of(found):
        row = rows[record["key"]]
        for name in ["score", "rank", "caption", "tags"]:
            assert record[name] == row[name], name
        assert np.array_equal(np.array(record["embedding"]), np.array(row["embedding"]))
        # Lists of lists without a size in their type, as Parquet has them, are stored with their shape.
        boxes = record["boxes"]["data"] if isinstance(record["boxes"], dict) else record["boxes"]
        assert np.array_equal(np.array(boxes).reshape(-1, 2), np.array(row["boxes"]).reshape(-1, 2))
        assert json.loads(record["meta"]) == row["meta"]
    manifest = Dataset(out, None).manifest
    types = {field["name"]: (field["type"], field["nullable"]) for field in manifest["schema"]["fields"]}
    assert types["embedding"] == ("array<float16>[4]", False) and types["tags"] == ("list<string>", False)
    assert types["boxes"] == ("array<int32>[?,2]" if kind == "arrow" else "array<int32>[?,?]", False)
    assert types["score"] == ("float32", False)
    binding = manifest["binding"]
    base = Dataset(photos, None).manifest
    assert (binding["fingerprint"], binding["manifest"]) == (base["fingerprint"], base["digest"])
    assert {name: split["records"] for name, split in binding["splits"].items()} == {k: len(v) for k, v in by_split.items()}
    options = manifest["options"]
    assert (options["table_rows"], options["surplus_rows"], options["records_without_row"]) == (len(rows), 2, 0)
    shown = dsconvert("inspect", out).stdout
    assert f"fields for the {len(rows) - 2} records of the dataset {base['fingerprint']}" in shown
    assert "joined by key, whatever their content" in shown


def test_a_dataset_is_a_table(dsconvert, photos, tmp_path):
    dsconvert("images", "fixtures/photos", "--out", tmp_path / "large", "--resize", "shorter:48", "--quiet")
    out = tmp_path / "sizes"
    dsconvert("add-fields", photos, tmp_path / "large", "--fields", "width_48=width,height_48=height", "--out", out)
    large = {record["key"]: record for record in Dataset(tmp_path / "large", None).records("train")}
    for record in all_of(records(out)):
        row = large[record["key"]]
        assert (record["width_48"], record["height_48"]) == (row["width"], row["height"])


def test_missing_rows_and_repeated_keys(dsconvert, photos, tmp_path):
    names = all_of(keys(photos))
    table = table_of(names)
    path, out = tmp_path / "scores.parquet", tmp_path / "scores"
    pq.write_table(table.slice(3), path)
    ran = dsconvert("add-fields", photos, path, "--out", out, status=2)
    assert "--missing: " in ran.stderr and "3 records have no row in the table, such as " in ran.stderr
    assert any(f'"{name}"' in ran.stderr for name in table["key"].to_pylist()[:3])
    assert "`--missing null`" in ran.stderr or "--missing null" in ran.stderr
    assert not out.exists(), "nothing was written"
    ran = dsconvert("add-fields", photos, path, "--out", out, "--missing", "null")
    assert "3 records have no row in the table: the fields are null" in ran.stdout
    left_out = set(table["key"].to_pylist()[:3])
    for record in all_of(records(out)):
        assert all((record[name] is None) == (record["key"] in left_out) for name in ["score", "caption", "embedding"])
    assert all(field["nullable"] for field in Dataset(out, None).manifest["schema"]["fields"][1:])
    # The last row has the key of row 4.
    again = pa.concat_tables([table, table.slice(4, 1)])
    pq.write_table(again, path)
    ran = dsconvert("add-fields", photos, path, "--out", tmp_path / "twice", status=2)
    key = table["key"][4].as_py()
    assert f'rows 4 and {len(names)} of the table have the same key "{key}"' in ran.stderr
    # Other keys: some of both are shown.
    other = table.set_column(0, "key", pa.array([f"/data/{name}" for name in table["key"].to_pylist()]))
    pq.write_table(other, path)
    ran = dsconvert("add-fields", photos, path, "--out", tmp_path / "other", status=2)
    assert f"{len(names)} records have no row" in ran.stderr and 'the table has the keys "/data/' in ran.stderr
    assert not (tmp_path / "other").exists() and not (tmp_path / "twice").exists()


def test_tables_that_do_not_fit_are_refused_with_the_option(dsconvert, photos, tmp_path):
    names = all_of(keys(photos))
    rows = len(names)
    good = {"key": names, "x": list(range(rows))}
    cases = [
        ({**good, "key": [None, *names[1:]]}, [], 'the key in the column "key" is null'),
        ({"id": names, "x": good["x"]}, [], '--on: there is no column "key"; there are "id", "x"'),
        ({**good, "key": [float(i) for i in range(rows)]}, [], "keys are texts or integers"),
        ({"key": names}, [], '--fields: the table has no column besides "key"'),
        ({**good, "image": names}, [], '--fields: the dataset has a field "image" already'),
        (good, ["--fields", "y"], '--fields: there is no column "y"'),
        (good, ["--fields", "x,x"], '--fields: two fields are called "x"'),
        (good, ["--per", "x=input_ids"], "only \"input_ids\" of datasets of text has items"),
        (good, ["--per", "z=input_ids"], '--per: there is no field "z"'),
        (good, ["--per", "x"], '--per: "x" is no pair of two names'),
        (good, ["--aligned", "x=both"], '--aligned: unknown value "both"'),
        (good, ["--flip", "x=y"], '--flip: there is no field "y" of the type of "x"'),
        (good, ["--read", "nothing"], '--read: the dataset has no field "nothing"'),
        (good, ["--pieces", "document"], "--pieces: no document of the dataset was divided"),
        ({**good, "x": [[1, None]] * rows}, [], "has a list with null"),
        ({**good, "x": [[[1], [1, 2]]] * rows}, [], "has lists of different lengths, and is no array"),
        ({**good, "x": [b"\xff"] * rows}, ["--format", "msgpack"], None),
        ({**good, "x": [[1, 2]] * rows}, ["--format", "msgpack"], "msgpack"),
    ]
    for columns, options, message in cases:
        path, out = tmp_path / "table.parquet", tmp_path / "out"
        pq.write_table(pa.table(columns), path)
        ran = dsconvert("add-fields", photos, path, "--out", out, *options, status=0 if message is None else 2)
        assert message is None or message in ran.stderr, (options, ran.stderr)
        assert out.exists() == (message is None), options
        shutil.rmtree(out, ignore_errors=True)
    path = tmp_path / "scores.csv"
    path.write_text("key,x\na,1\n")
    ran = dsconvert("add-fields", photos, path, "--out", out, status=2)
    assert "neither a Parquet or Arrow file nor a dataset" in ran.stderr
    # A file that breaks in the middle.
    path = tmp_path / "broken.parquet"
    pq.write_table(pa.table(good), path, compression="none")
    damaged = bytearray(path.read_bytes())
    damaged[4:40] = bytes(36)
    path.write_bytes(damaged)
    ran = dsconvert("add-fields", photos, path, "--out", out, status=2)
    assert "broken.parquet" in ran.stderr and not out.exists()


def test_packed_rows_and_divided_documents(dsconvert, tmp_path):
    options = ["--tokenizer", "fixtures/tokenizers/bpe.json", "--quiet"]
    dsconvert("text", "fixtures/corpus", "--out", tmp_path / "packed", *options, "--add-eos", "--pack", "256")
    path, out = tmp_path / "scores.parquet", tmp_path / "out"
    pq.write_table(pa.table({"key": ["a"], "x": [1]}), path)
    ran = dsconvert("add-fields", tmp_path / "packed", path, "--out", out, status=2)
    assert "the dataset was made with --pack: a row holds several documents" in ran.stderr
    base = tmp_path / "divided"
    dsconvert("text", "fixtures/corpus", "--out", base, *options, "--max-length", "64", "--overflow", "split")
    pieces = keys(base)["train"]
    documents = sorted({re.sub(r"@\d+$", "", key) for key in pieces})
    assert len(documents) < len(pieces)
    pq.write_table(pa.table({"key": documents, "x": list(range(len(documents)))}), path)
    ran = dsconvert("add-fields", base, path, "--out", out, status=2)
    assert "--pieces: documents were divided into several records (--overflow): say what the keys are" in ran.stderr
    dsconvert("add-fields", base, path, "--out", out, status=2) and not out.exists()
    dsconvert("add-fields", base, path, "--out", out, "--pieces", "document")
    found = records(out)["train"]
    assert [(r["key"], documents[r["x"]]) for r in found] == [(key, re.sub(r"@\d+$", "", key)) for key in pieces]
    pq.write_table(pa.table({"key": pieces, "x": list(range(len(pieces)))}), path)
    dsconvert("add-fields", base, path, "--out", tmp_path / "own", "--pieces", "record")
    assert [r["x"] for r in records(tmp_path / "own")["train"]] == list(range(len(pieces)))


def test_values_per_token_have_the_number_of_tokens(dsconvert, tokens, tmp_path):
    base = Dataset(tokens, None).table("train")
    names, lengths = base["key"].to_pylist(), base["length"].to_pylist()
    path, out = tmp_path / "weights.parquet", tmp_path / "weights"
    columns = {
        "key": names,
        "weights": pa.array([[i + 0.5] * n for i, n in enumerate(lengths)], pa.list_(pa.float32())),
        "total": [float(n) for n in lengths],
    }
    pq.write_table(pa.table(columns), path)
    options = ["--per", "weights=input_ids", "--aligned", "weights=input", "--of", "total=input_ids"]
    dsconvert("add-fields", tokens, path, "--out", out, *options)
    manifest, base = Dataset(out, None).manifest, Dataset(tokens, None).manifest
    binding = manifest["binding"]
    assert binding["fields"] == {"weights": {"per": "input_ids", "aligned": "input"}, "total": {"of": "input_ids"}}
    assert binding["tokenizer"] == base["tokenizer"]["sha256"]
    assert list(binding["splits"]["train"]["content"]) == ["input_ids"]
    shown = dsconvert("inspect", out).stdout
    assert "made from input_ids, and bound to that content" in shown
    assert "weights: one value for each of input_ids, as input" in shown and "total: one value for all of input_ids" in shown
    columns["weights"] = pa.array([[0.5] * (n + (i == 3)) for i, n in enumerate(lengths)], pa.list_(pa.float32()))
    pq.write_table(pa.table(columns), path)
    ran = dsconvert("add-fields", tokens, path, "--out", tmp_path / "wrong", *options, status=2)
    assert f'--per: "weights" of key "{names[3]}" has {lengths[3] + 1} values, and the record has {lengths[3]} tokens' in ran.stderr
    assert not (tmp_path / "wrong").exists()
    columns["weights"] = pa.array([None if i == 3 else [0.5] * n for i, n in enumerate(lengths)], pa.list_(pa.float32()))
    pq.write_table(pa.table(columns), path)
    ran = dsconvert("add-fields", tokens, path, "--out", tmp_path / "null", *options, status=2)
    assert f'"weights" of key "{names[3]}" is null' in ran.stderr


def test_an_export_has_the_fields_of_companions(dsconvert, photos, tmp_path):
    by_split = keys(photos)
    table = table_of(all_of(by_split)).select(["key", "score", "caption"])
    pq.write_table(table, tmp_path / "scores.parquet")
    dsconvert("add-fields", photos, tmp_path / "scores.parquet", "--out", tmp_path / "scores", "--quiet")
    dsconvert("export", photos, "--add", tmp_path / "scores", "--to", "hf", "--out", tmp_path / "hf", "--quiet")
    rows = {row["key"]: row for row in table.to_pylist()}
    exported = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "hf").rglob("*.parquet")))
    assert exported.num_rows == len(rows)
    for row in exported.select(["key", "score", "caption"]).to_pylist():
        assert row == rows[row["key"]]
    # Without it, the export has only the fields of the dataset.
    dsconvert("export", photos, "--to", "hf", "--out", tmp_path / "plain", "--quiet")
    assert "score" not in pq.read_schema(next((tmp_path / "plain").rglob("*.parquet"))).names


def test_the_base_is_compared_when_both_are_opened(dsconvert, photos, tmp_path):
    base = tmp_path / "base"
    convert = ["images", "fixtures/photos", "--split", "train=0.7,validation=0.3", "--quiet"]
    dsconvert(*convert, "--out", base, "--resize", "shorter:24")
    pq.write_table(table_of(all_of(keys(base))).select(["key", "score"]), tmp_path / "scores.parquet")
    by_key, by_image = tmp_path / "by_key", tmp_path / "by_image"
    dsconvert("add-fields", base, tmp_path / "scores.parquet", "--out", by_key)
    dsconvert("add-fields", base, tmp_path / "scores.parquet", "--out", by_image, "--read", "image")
    content = Dataset(by_image, None).manifest["binding"]["splits"]["train"]["content"]

    def export(companion, status=0):
        shutil.rmtree(tmp_path / "export", ignore_errors=True)
        return dsconvert("export", base, "--add", companion, "--to", "hf", "--out", tmp_path / "export", status=status).stderr

    export(by_key), export(by_image)
    # The same images in other shards.
    dsconvert(*convert, "--out", base, "--resize", "shorter:24", "--shard-records", "5", "--format", "arrow", "--overwrite")
    export(by_key), export(by_image)
    # The same keys with other images.
    dsconvert(*convert, "--out", base, "--resize", "shorter:20", "--overwrite")
    export(by_key)
    error = export(by_image, 2)
    assert "--add: the companion does not belong to this dataset" in error
    assert f'the content of "image" in split "train" had the digest {content["image"]}, and now has xxh3-128:' in error
    assert "dsconvert add-fields" in error
    # The same number of records, other keys.
    dsconvert(*convert, "--out", base, "--resize", "shorter:24", "--overwrite", "--seed", "7")
    for companion in (by_key, by_image):
        assert re.search("records in split|the keys in split", export(companion, 2))
    shard = next((by_key / "train").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    ran = dsconvert("inspect", by_key, "--verify", "--repair", "fixtures/photos", status=3)
    assert "add them again, with --overwrite" in ran.stderr


def test_runs_are_repeatable_resumable_and_refuse_what_changed(dsconvert, photos, tmp_path):
    table = table_of(all_of(keys(photos)))
    path, out = tmp_path / "scores.parquet", tmp_path / "scores"
    pq.write_table(table, path)
    dsconvert("add-fields", photos, path, "--out", out)
    files = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    dsconvert("add-fields", photos, path, "--out", out, status=2)
    assert "are there already" in dsconvert("add-fields", photos, path, "--out", out, "--resume").stdout
    dsconvert("add-fields", photos, path, "--out", out, "--overwrite")
    assert files == {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    # Another order of the rows gives the same records.
    pq.write_table(table.take(list(reversed(range(table.num_rows)))), path)
    dsconvert("add-fields", photos, path, "--out", tmp_path / "reversed")
    assert records(out) == records(tmp_path / "reversed")
    ran = dsconvert("add-fields", photos, path, "--out", out, "--resume", status=2)
    assert "written with other options" in ran.stderr


def test_a_kill_at_any_call_leaves_nothing_or_the_same_bytes(dsconvert, binary, photos, tmp_path):
    path, whole = tmp_path / "scores.parquet", tmp_path / "whole"
    pq.write_table(table_of(all_of(keys(photos))), path)
    faults = Faults(tmp_path)
    run = lambda out, fault=None: faults.run([binary, "add-fields", photos, path, "--quiet", "--resume", "--out", out], out, fault)  # noqa: E731
    calls = run(whole).calls
    expected = {p.relative_to(whole): p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    for number, fault in enumerate(some(calls, 1, ["kill-before", "kill-after"], "add-fields")):
        out = tmp_path / str(number)
        assert run(out, fault).returncode == -signal.SIGKILL, fault
        assert run(out).returncode == 0, fault
        assert expected == {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}, fault
        shutil.rmtree(out)
