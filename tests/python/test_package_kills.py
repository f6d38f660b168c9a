"""Kills at file system calls of a program that writes records: whatever is left, the next run ends with the same bytes.

Three kills of each way to write on every push, and 50 with `tests/run faults`.
"""

import signal
import sys
from pathlib import Path

import pytest

import dsconvert
from faults import Faults, some

HERE = Path(__file__).parent
KILLS = ("kill-before", "kill-after")

CONVERT = """
import sys, convert_functions as f, dsconvert
if __name__ == "__main__":
    dsconvert.convert({fn}, range(40), sys.argv[1], f.SCHEMA, version="1", unit_items=6, resume=True{options})
"""
ADD_FIELDS = """
import sys, companion_functions as f, dsconvert
if __name__ == "__main__":
    schema = {{"count": "int64"}}
    dsconvert.add_fields(sys.argv[2], f.count, sys.argv[1], schema, read=["text"], version="1", unit_records=6, resume=True{options})
"""
WRITER = """
import sys, convert_functions as f, dsconvert
with dsconvert.Writer(sys.argv[1], f.SCHEMA, shard_bytes=600, splits=["train", "test"], overwrite=True) as writer:
    for item in range(40):
        writer.write(f.record_of(item), split="train" if item % 3 else "test")
"""
# Program, and number of processes that write.
WAYS = {
    "convert": (CONVERT.format(fn="f.record", options=""), 1),
    "convert, batches": (CONVERT.format(fn="f.records", options=", batch_size=4"), 1),
    "convert, workers": (CONVERT.format(fn="f.record", options=", workers=2"), 3),
    "add_fields": (ADD_FIELDS.format(options=""), 1),
    "add_fields, workers": (ADD_FIELDS.format(options=", workers=2"), 3),
    "writer": (WRITER, 1),
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A dataset of texts."""
    folder = tmp_path_factory.mktemp("base")
    with dsconvert.Writer(folder / "base", {"text": "str"}) as writer:
        writer.write_batch({"key": [f"k{n}" for n in range(40)], "text": ["x" * n for n in range(40)]})
    return folder / "base"


def tree(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}


def run_of(way, tmp_path, faults, base):
    """Returns a function that runs the program of a way to write, and the number of its processes."""
    program, processes = WAYS[way]
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    return lambda out, fault=None: faults.run([sys.executable, script, out, base], out, fault, environment), processes


@pytest.mark.parametrize("way", WAYS)
def test_a_kill_at_any_call_leaves_what_the_next_run_completes(tmp_path, faults, base, way):
    run, processes = run_of(way, tmp_path, faults, base)
    whole = run(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    expected = tree(tmp_path / "whole")
    fired = 0
    for number, fault in enumerate(some(whole.calls, processes, KILLS, way)):
        out = tmp_path / str(number)
        killed = run(out, fault)
        hit = bool(killed.calls)
        fired += hit
        # A worker that is killed stops the run.
        assert killed.returncode in ((-signal.SIGKILL, 1) if processes > 1 else (-signal.SIGKILL,)) if hit else killed.returncode == 0, (
            fault, killed.stderr,
        )
        if (out / "manifest.json").exists():
            # Committed: only what the run needed may be left.
            left = {name: content for name, content in tree(out).items() if not name.startswith(".dsconvert/")}
            assert left == expected, fault
        else:
            with pytest.raises(dsconvert.Error):
                dsconvert.open(out)
        again = run(out)
        assert again.returncode == 0, (fault, again.stderr)
        assert tree(out) == expected, fault
    assert fired > 0


def test_an_error_at_any_call_of_a_writer_commits_nothing_or_all(tmp_path, faults, base):
    """The disk is full at one call. What is only an attempt, such as the removal of a temporary file, may fail."""
    run, _ = run_of("writer", tmp_path, faults, base)
    whole = run(tmp_path / "whole")
    expected = tree(tmp_path / "whole")
    for number, fault in enumerate(some(whole.calls, 1, ["error"], "errors")):
        out = tmp_path / str(number)
        failed = run(out, fault)
        assert failed.calls and failed.returncode in (0, 1), (fault, failed.stderr)
        if failed.returncode == 0:
            assert tree(out) == expected, fault
        else:
            assert "No space left on device" in failed.stderr, (fault, failed.stderr)
            if (out / "manifest.json").exists():
                assert {name for name in tree(out) if not name.startswith(".dsconvert/")} == expected.keys(), fault
        assert run(out).returncode == 0 and tree(out) == expected, fault
