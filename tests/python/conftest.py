"""Datasets for the interoperability tests: each kind in each format, converted once per session from the fixtures."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import tier
from dataset import FORMATS, Dataset, load_protobuf
from object_server import Objects

# No test may access the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"

# Small enough shards and odd enough splits that every dataset has several of both.
PHOTO_OPTIONS = ["--resize", "shorter:96", "--shard-records", "8", "--split", "train=0.7,validation=0.3"]
CORPUS_OPTIONS = ["--shard-records", "150", "--split", "train=0.8,validation=0.2"]


def pytest_collection_modifyitems(items):
    """Skips the tests that are not in the sample of this commit."""
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None or item.get_closest_marker("every_push"):
            continue
        (subject,), one_in, using = mark.args, mark.kwargs["one_in"], mark.kwargs.get("using")
        if using and using not in item.fixturenames:
            continue
        if not tier.is_exhaustive(subject) and not tier.in_sample(item.nodeid, one_in):
            item.add_marker(pytest.mark.skip(reason=f"not in the sample of this commit: see `tests/run {subject}`"))


@pytest.fixture(scope="session")
def binary():
    """The dsconvert under test: DSCONVERT_BIN, or what cargo builds."""
    if given := os.environ.get("DSCONVERT_BIN"):
        return Path(given).resolve(strict=True)
    build = subprocess.run(
        ["cargo", "build", "--locked", "--bin", "dsconvert", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )
    messages = map(json.loads, build.stdout.splitlines())
    return next(Path(m["executable"]) for m in messages if m.get("executable"))


@pytest.fixture(scope="session")
def dsconvert(binary):
    """Runs dsconvert and returns the finished process; fails unless it exits with `status`."""

    def run(*args, status=0):
        command = [binary, *map(str, args)]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        output = f"{done.args}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        assert done.returncode == status, f"exit status {done.returncode}, not {status}\n{output}"
        assert "panicked" not in done.stderr, output
        return done

    return run


@pytest.fixture(scope="session")
def command(dsconvert):
    """The same, for tests in which the name `dsconvert` is taken by the Python package."""
    return dsconvert


@pytest.fixture
def objects(binary):
    """Starts servers of object storage, and stops them at the end."""
    started = []

    def start(folder, *options):
        started.append(Objects(binary, folder, *options))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="session")
def protobuf(tmp_path_factory):
    """The module that protoc generates from record.proto."""
    return load_protobuf(ROOT / "proto", tmp_path_factory.mktemp("protobuf"))


def once(convert):
    """Caches the results of `convert`. If a conversion fails, every test that needs it fails with the same message."""
    made = {}

    def get(*args):
        if args not in made:
            try:
                made[args] = convert(*args)
            except AssertionError as error:
                made[args] = error
        if isinstance(made[args], AssertionError):
            raise made[args]
        return made[args]

    return get


@pytest.fixture(scope="session")
def photos_in(dsconvert, protobuf, tmp_path_factory):
    """The photographs in a format."""
    out = tmp_path_factory.mktemp("photos")

    def convert(fmt):
        dsconvert("images", "fixtures/photos", "--out", out / fmt, "--format", fmt, *PHOTO_OPTIONS)
        return Dataset(out / fmt, protobuf)

    return once(convert)


@pytest.fixture(scope="session")
def corpus_in(dsconvert, protobuf, tmp_path_factory):
    """The corpus in a format, its ids made by one of the tokenizers (`bpe` unless named)."""
    out = tmp_path_factory.mktemp("corpus")

    def convert(fmt, tokenizer):
        directory = out / f"{fmt}-{tokenizer}"
        options = ["--tokenizer", f"fixtures/tokenizers/{tokenizer}.json", "--format", fmt, *CORPUS_OPTIONS]
        dsconvert("text", "fixtures/corpus", "--out", directory, *options)
        return Dataset(directory, protobuf)

    corpus = once(convert)
    return lambda fmt, tokenizer="bpe": corpus(fmt, tokenizer)


@pytest.fixture
def text(corpus_in):
    """The split `train` of the corpus, opened by the Python package."""
    # Tests of the command run without the package.
    import dsconvert

    return dsconvert.open(corpus_in("arrow").path, "train")


@pytest.fixture(params=FORMATS)
def photos(request, photos_in):
    """The photographs, in each format."""
    return photos_in(request.param)


@pytest.fixture(params=FORMATS)
def corpus(request, corpus_in):
    """The corpus, in each format."""
    return corpus_in(request.param)


@pytest.fixture(params=["images", "text"])
def kind(request):
    return request.param


@pytest.fixture(params=FORMATS)
def anything(request, kind, photos_in, corpus_in):
    """Each kind in each format."""
    return photos_in(request.param) if kind == "images" else corpus_in(request.param)


@pytest.fixture(params=["parquet", "arrow"])
def columnar(request, kind, photos_in, corpus_in):
    """Each kind in the formats that table libraries open."""
    return photos_in(request.param) if kind == "images" else corpus_in(request.param)


@pytest.fixture
def no_ranks(monkeypatch):
    """Removes the rank variables of the process that runs the tests."""
    ranks = pytest.importorskip("dsconvert.ranks")
    for name in [name for pair in ranks._RANKS for name in pair] + ranks._LOCAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "_said", set())
