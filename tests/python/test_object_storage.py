"""Datasets in object storage: on a moto server, and on the server of tests/objects, which injects faults."""

import json
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import companion_functions as companions
import convert_functions as functions
import dsconvert
from dataset import FORMATS
from object_server import CREDENTIALS


@pytest.fixture(scope="module")
def moto():
    """The endpoint of a moto server with a bucket called `bucket`, and a client of it."""
    server = Path(sys.executable).parent / "moto_server"
    started = subprocess.Popen([server, "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True)
    endpoint = next(found[0] for line in started.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
    # The server logs each request. It would stop when the pipe is full.
    threading.Thread(target=started.stderr.read, daemon=True).start()
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **CREDENTIALS)
    client.create_bucket(Bucket="bucket")
    yield endpoint, client
    started.kill()
    started.communicate()


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]) if isinstance(value, np.ndarray) else value == other[name], name


def batches(split, **options):
    """All batches of two epochs."""
    loader = dsconvert.Loader(split, **options)
    return [batch for _ in range(2) for batch in loader]


def assert_same_batches(ones, others):
    assert len(ones) == len(others) > 0
    for one, other in zip(ones, others, strict=True):
        assert_equal(dict(one), dict(other))


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_remote_dataset_equals_a_local_one(moto, corpus_in, photos_in, fmt):
    endpoint, client = moto
    for name, path in [("corpus", corpus_in(fmt).path), ("photos", photos_in(fmt).path)]:
        for file in sorted(path.rglob("*")):
            if file.is_file():
                client.upload_file(str(file), "bucket", f"{fmt}/{name}/{file.relative_to(path)}")
        options = {"endpoint_url": endpoint, "region": "us-east-1", **CREDENTIALS}
        local = dsconvert.open(path)
        remote = dsconvert.open(f"s3://bucket/{fmt}/{name}", storage_options=options)
        assert (remote.path, remote.kind, remote.splits) == (f"s3://bucket/{fmt}/{name}", local.kind, local.splits)
        for split in local.splits:
            here, there = local[split], remote[split]
            assert len(here) == len(there)
            for record in range(0, len(here), 7):
                assert_equal(here[record], there[record])
        limits = {"max_tokens": 4096, "oversize": "truncate"} if name == "corpus" else {"batch_size": 4, "center_crop": 64}
        assert_same_batches(batches(local["train"], seed=3, **limits), batches(remote["train"], seed=3, **limits))


def test_a_loader_resumes_and_faults_change_nothing(objects, corpus_in, tmp_path):
    path = corpus_in("msgpack").path
    server = objects(path, "--one-in", 3, "--seed", 5)
    options = {"max_tokens": 2048, "oversize": "truncate", "seed": 1}
    local = batches(dsconvert.open(path, "train"), **options)

    def opened():
        return dsconvert.open("s3://bucket", "train", storage_options=server.storage_options, cache_dir=tmp_path / "cache")

    loader = dsconvert.Loader(opened(), **options)
    started = iter(loader)
    first = [next(started) for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    again = dsconvert.Loader(opened(), **options)
    again.load_state_dict(state)
    epoch = len(dsconvert.Loader(dsconvert.open(path, "train"), **options))
    assert_same_batches(local[:epoch], first + list(again))
    assert server.counts()["faults"] > 0


def test_the_second_epoch_comes_from_the_cache(objects, photos_in, tmp_path):
    path = photos_in("arrow").path
    server = objects(path)
    split = dsconvert.open("s3://bucket", "train", storage_options=server.storage_options, cache_dir=tmp_path / "cache")
    loader = dsconvert.Loader(split, batch_size=4, center_crop=64)
    list(loader)
    before = server.counts()
    assert before["sent"] < 1.1 * sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    list(loader)
    assert server.counts() == before


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_torch_open_the_dataset_themselves(objects, corpus_in, tmp_path, start):
    path = corpus_in("arrow").path
    server = objects(path)
    local = dsconvert.open(path, "validation", fields=["key", "input_ids"])
    # A request before the fork starts threads that do not exist in the workers.
    remote = dsconvert.open(
        "s3://bucket", "validation", fields=["key", "input_ids"],
        storage_options=server.storage_options, cache_dir=tmp_path / "cache",
    )
    assert_equal(local[0], remote[0])
    assert_equal(local[1], pickle.loads(pickle.dumps(remote))[1])
    loader = torch.utils.data.DataLoader(
        remote, batch_size=None, num_workers=2, multiprocessing_context=start, collate_fn=dict
    )
    found = {record["key"]: record for record in loader}
    assert len(found) == len(local)
    for record in local:
        assert np.array_equal(np.asarray(found[record["key"]]["input_ids"]), record["input_ids"])


def test_inspect_reads_remote_datasets_and_names_mistakes(objects, dsconvert, photos_in, monkeypatch):
    server = objects(photos_in("parquet").path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    assert "records" in dsconvert("inspect", "s3://bucket").stdout
    assert "intact" in dsconvert("inspect", "s3://bucket", "--verify").stdout
    assert json.loads(dsconvert("inspect", "s3://bucket", "--json").stdout)["kind"] == "images"
    assert "not a dataset" in dsconvert("inspect", "s3://bucket/none", status=3).stderr
    assert "local" in dsconvert("inspect", "s3://bucket", "--card", status=2).stderr
    for name in ["ftp://host/x", "s3://"]:
        assert name in dsconvert("inspect", name, status=2).stderr


def test_changed_variables_apply_to_what_is_opened_later(objects, corpus_in, monkeypatch):
    for server in (objects(corpus_in("msgpack").path), objects(corpus_in("msgpack").path)):
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        before = server.counts()
        assert len(dsconvert.open("s3://bucket")["train"])
        assert server.counts() != before, "the second server is asked, too"


def test_options_that_do_not_apply_are_refused(tmp_path):
    with pytest.raises(dsconvert.UsageError, match="object storage"):
        dsconvert.open(tmp_path, cache_dir=tmp_path / "cache")
    assert os.listdir(tmp_path) == []
    for path in ["", "s3://bucket/cache"]:
        with pytest.raises(dsconvert.UsageError, match="cache_dir: .*(empty|is a URL)"):
            dsconvert.open("s3://bucket/x", cache_dir=path)
    with pytest.raises(dsconvert.UsageError, match="cache_dir"):
        dsconvert.open("s3://bucket/x", cache_bytes=1)
    with pytest.raises(dsconvert.UsageError, match="color"):
        dsconvert.open("s3://bucket/x", storage_options={"color": "red"})


@pytest.fixture
def bucket(moto, monkeypatch):
    """A client of the moto server, whose endpoint is in the variables."""
    endpoint, client = moto
    for name, value in {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    return client


def objects_in(client, prefix):
    """Returns the objects below a prefix, by name."""
    found = client.list_objects_v2(Bucket="bucket", Prefix=f"{prefix}/").get("Contents", [])
    read = lambda key: client.get_object(Bucket="bucket", Key=key)["Body"].read()  # noqa: E731
    return {entry["Key"].removeprefix(f"{prefix}/"): read(entry["Key"]) for entry in found}


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_records_are_converted_to_object_storage(bucket, tmp_path):
    """Also by processes and parts: the objects are those of a local conversion."""
    options = {"version": "1", "unit_items": 9, "index": ["number"]}
    local = tmp_path / "local"
    dsconvert.convert(functions.record, range(50), local, functions.SCHEMA, **options)
    expected = files_in(local)
    dsconvert.convert(functions.record, range(50), "s3://bucket/records", functions.SCHEMA, workers=2, **options)
    assert objects_in(bucket, "records") == expected
    out = "s3://bucket/parts"
    done = [dsconvert.convert(functions.record, range(50), out, functions.SCHEMA, part=(n, 2), **options) for n in (2, 1)]
    assert [summary.committed for summary in done] == [False, True] and objects_in(bucket, "parts") == expected
    again = dsconvert.convert(functions.record, range(50), out, functions.SCHEMA, resume=True, **options)
    assert again.committed and again.found == 0
    with pytest.raises(dsconvert.UsageError):
        dsconvert.convert(functions.record, range(50), out, functions.SCHEMA, resume=True, **{**options, "version": "2"})


def test_a_writer_commits_to_object_storage_or_leaves_nothing(bucket, tmp_path):
    def write(out, items):
        with dsconvert.Writer(out, functions.SCHEMA, shard_bytes=500) as writer:
            for item in items:
                writer.write(functions.record_of(item))

    def failing():
        yield from range(40)
        assert any(name.endswith(".arrow") for name in objects_in(bucket, "failed")), "shards were uploaded"
        raise ValueError("mine")

    write(tmp_path / "local", range(40))
    write("s3://bucket/written", range(40))
    assert objects_in(bucket, "written") == files_in(tmp_path / "local")
    with pytest.raises(dsconvert.UsageError, match="a dataset already exists"):
        write("s3://bucket/written", range(40))
    with pytest.raises(ValueError, match="mine"):
        write("s3://bucket/failed", failing())
    assert objects_in(bucket, "failed") == {}
    write("s3://bucket/failed", range(40))
    with pytest.raises(dsconvert.NotCommittedError, match="two items have the key"):
        with dsconvert.Writer("s3://bucket/twice", functions.SCHEMA) as writer:
            for item in range(2):
                writer.write(functions.record_of(item), key="twice")
    assert objects_in(bucket, "twice") == {}


@pytest.fixture
def remote_photos(bucket, photos_in):
    """A dataset of photographs, here and in object storage."""
    path = photos_in("arrow").path
    for name, content in files_in(path).items():
        bucket.put_object(Bucket="bucket", Key=f"photos/{name}", Body=content)
    return path, "s3://bucket/photos"


def keys_of(path):
    data = dsconvert.open(path)
    return [record["key"] for name in data.splits for record in data[name]]


def test_columns_of_a_table_are_added_to_a_remote_dataset(bucket, remote_photos, command, tmp_path):
    here, there = remote_photos
    keys = keys_of(here)
    table = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"key": keys[::-1], "score": [float(n) for n in range(len(keys))]}), table)
    dsconvert.add_fields(here, table, tmp_path / "local", read=["image"])
    expected = files_in(tmp_path / "local")
    dsconvert.add_fields(there, table, tmp_path / "scores", read=["image"])
    assert files_in(tmp_path / "scores") == expected
    dsconvert.add_fields(there, table, "s3://bucket/scores", read=["image"])
    assert objects_in(bucket, "scores") == expected
    command("add-fields", there, table, "--out", "s3://bucket/command", "--read", "image", "--quiet")
    assert objects_in(bucket, "command") == expected
    # A dataset in object storage is a table, too.
    dsconvert.add_fields(there, "s3://bucket/scores", tmp_path / "copied", fields={"again": "score"})
    local = dsconvert.open(here, "train", add=[tmp_path / "local"])
    for companion in (tmp_path / "scores", "s3://bucket/scores"):
        remote = dsconvert.open(there, "train", add=[companion])
        for record in range(0, len(local), 5):
            assert_equal(local[record], remote[record])
        options = {"batch_size": 4, "fields": ["score"], "seed": 2}
        ours = [batch["score"].tolist() for batch in dsconvert.Loader(local, **options)]
        assert ours == [batch["score"].tolist() for batch in dsconvert.Loader(there, add=[companion], **options)]


def test_a_function_adds_fields_to_a_remote_dataset(bucket, remote_photos, tmp_path):
    here, there = remote_photos
    schema = {"mean": dsconvert.array("float32", (3,)), "size": "str"}
    options = {"read": ["image"], "version": "1", "unit_records": 7}
    dsconvert.add_fields(here, companions.mean, tmp_path / "local", schema, **options)
    expected = files_in(tmp_path / "local")
    dsconvert.add_fields(there, companions.mean, tmp_path / "means", schema, workers=2, **options)
    assert files_in(tmp_path / "means") == expected
    parts = [dsconvert.add_fields(there, companions.mean, "s3://bucket/means", schema, part=(n, 2), **options) for n in (1, 2)]
    assert [part.committed for part in parts] == [False, True] and objects_in(bucket, "means") == expected
    local, remote = (dsconvert.open(base, "train", add=[tmp_path / "local"]) for base in (here, there))
    assert_equal(local[3], remote[3])


def test_a_remote_dataset_that_changed_is_compared_without_reading_what_is_the_same(bucket, remote_photos, command, tmp_path):
    here, there = remote_photos
    keys = keys_of(here)
    pq.write_table(pa.table({"key": keys, "score": np.arange(len(keys))}), tmp_path / "scores.parquet")
    dsconvert.add_fields(there, tmp_path / "scores.parquet", "s3://bucket/bound", read=["image"])
    options = ["--split", "train=0.7,validation=0.3", "--quiet"]

    def again(*others):
        out = tmp_path / "again"
        command("images", "fixtures/photos", "--out", out, *options, *others, "--overwrite")
        for name in objects_in(bucket, "photos"):
            bucket.delete_object(Bucket="bucket", Key=f"photos/{name}")
        for name, content in files_in(out).items():
            # The shards are never read: their bytes are others.
            content = b"\xff" * len(content) if name.endswith(".parquet") else content
            bucket.put_object(Bucket="bucket", Key=f"photos/{name}", Body=content)

    again("--resize", "shorter:96", "--shard-records", "5", "--format", "parquet")
    assert dsconvert.open(there, "train", add=["s3://bucket/bound"]).fields
    again("--resize", "shorter:95", "--format", "arrow")
    with pytest.raises(dsconvert.UsageError, match='the content of "image" in split "train" had the digest'):
        dsconvert.open(there, add=["s3://bucket/bound"])
