"""The command in the Python package: output, exit statuses and signals are the same as with the binary."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT

WAYS = {"script": [str(Path(sys.executable).with_name("dsconvert"))], "module": [sys.executable, "-m", "dsconvert"]}


@pytest.fixture(params=WAYS)
def package(request):
    return WAYS[request.param]


def run(package, *args):
    return subprocess.run(
        [*package, *map(str, args)], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def without_commit(output):
    """Only a release records its commit, and the package may be one while the binary is not."""
    return [line for line in output.splitlines() if not line.startswith("commit:")]


def test_it_prints_the_same_as_the_binary(package, dsconvert, tmp_path):
    for args, status in [
        (["--version"], 0), (["--help"], 0), (["images", "--help"], 0), ([], 2), (["nothing"], 2),
        (["text", "fixtures/corpus", "--out", tmp_path / "none"], 2), (["inspect", tmp_path / "none"], 3),
    ]:
        done, expected = run(package, *args), dsconvert(*args, status=status)
        assert (done.returncode, done.stderr) == (status, expected.stderr)
        assert without_commit(done.stdout) == without_commit(expected.stdout)


def test_it_converts(package, tmp_path):
    text = ["text", "fixtures/corpus", "--tokenizer", "bytes", "--out", tmp_path / "out"]
    assert run(package, *text).returncode == 0
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["converted"] > 100
    assert run(package, *text, "--overwrite", "--strict").returncode == 1
    assert run(package, *text).returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_finished_units(package, number, tmp_path):
    with open(tmp_path / "lines.jsonl", "w") as lines:
        for n in range(30_000):
            lines.write(json.dumps({"text": f"Line {n} of a corpus that takes a while. " * 8}) + "\n")
    out = tmp_path / "out"
    text = ["text", str(tmp_path / "lines.jsonl"), "--out", str(out)]
    text += ["--tokenizer", "fixtures/tokenizers/unigram.json", "--unit-bytes", "256k", "--threads", "1"]
    child = subprocess.Popen(
        [*package, *text], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while child.poll() is None and not (out / ".dsconvert/units").exists():
        time.sleep(0.001)
    child.send_signal(number)
    _, output = child.communicate()
    assert child.returncode == 128 + number, output
    assert "--resume" in output and "KeyboardInterrupt" not in output and "Traceback" not in output
    assert not (out / "manifest.json").exists()
    assert run(package, *text, "--resume").returncode == 0
    assert json.loads((out / "manifest.json").read_bytes())["converted"] == 30_000
