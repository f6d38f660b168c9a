"""The command line: the README's first command, determinism, refusals and exit statuses."""

import filecmp
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import zlib

import pytest

from conftest import FIXTURES, ROOT


def same_tree(a, b):
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(b)) for p in b.rglob("*") if p.is_file())
    _, different, unreadable = filecmp.cmpfiles(a, b, names, shallow=False)
    assert not different and not unreadable
    return names


def test_the_first_command_of_the_readme_runs_twice(binary, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    first, second = ([shlex.split(line, comments=True) for line in block.splitlines()] for block in blocks[:2])
    assert second == [["tests/run"]]
    ((script, *rest),) = first
    for _ in range(2):
        done = subprocess.run(
            [ROOT / script, *rest, "made"],
            cwd=tmp_path, env={**os.environ, "DSCONVERT_BIN": str(binary)}, capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr
        for name, fmt in (("photos", "parquet"), ("corpus", "arrow")):
            manifest = json.loads((tmp_path / "made" / name / "manifest.json").read_bytes())
            assert manifest["format"] == fmt and manifest["converted"] > 20
            assert str(tmp_path / "made" / name) in done.stdout


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "msgpack", "protobuf"])
def test_threads_do_not_change_a_byte(dsconvert, tmp_path, fmt):
    for kind, rest in [
        ("images", ["fixtures/photos", "--resize", "shorter:64"]),
        ("text", ["fixtures/corpus", "--tokenizer", "fixtures/tokenizers/bpe.json"]),
    ]:
        outs = [tmp_path / f"{kind}-{threads}" for threads in (1, 3)]
        for threads, out in zip((1, 3), outs):
            dsconvert(kind, *rest, "--format", fmt, "--shard-records", "7", "--threads", threads, "--out", out)
        assert len(same_tree(*outs)) > 5


def test_shuffling_is_a_permutation_determined_by_the_seed(dsconvert, tmp_path, protobuf):
    from dataset import Dataset

    orders = {}
    for name, options in {
        "plain": [], "one": ["--shuffle", "--seed", "1"], "again": ["--shuffle", "--seed", "1"],
        "two": ["--shuffle", "--seed", "2"]
    }.items():
        dsconvert("images", "fixtures/photos", "--encode", "keep", "--out", tmp_path / name, *options)
        orders[name] = [record["key"] for record in Dataset(tmp_path / name, protobuf).records("train")]
    assert orders["one"] == orders["again"] != orders["two"]
    assert orders["one"] != orders["plain"]
    assert sorted(orders["one"]) == sorted(orders["two"]) == sorted(orders["plain"])


def test_adding_files_never_moves_old_ones_between_splits(dsconvert, tmp_path, protobuf):
    from dataset import Dataset

    some = tmp_path / "some" / "photos"
    for path in sorted(FIXTURES.glob("photos/*/*.jpg"))[::2]:
        (some / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, some / path.parent.name)
    splits = {}
    for name, source in {"few": some, "all": "fixtures/photos"}.items():
        dsconvert("images", source, "--split", "train=0.6,test=0.4", "--out", tmp_path / name)
        dataset = Dataset(tmp_path / name, protobuf)
        splits[name] = {record["key"]: split for split in dataset.splits for record in dataset.records(split)}
    assert splits["few"].items() <= splits["all"].items()
    assert set(splits["few"].values()) == {"train", "test"}


def test_an_existing_dataset_is_refused_untouched_then_replaced(dsconvert, tmp_path):
    out = tmp_path / "out"
    text = ["text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", out]
    dsconvert(*text, "--format", "parquet")
    shutil.copytree(out, tmp_path / "before")
    assert "--overwrite" in dsconvert(*text, status=2).stderr
    same_tree(out, tmp_path / "before")
    (out / "mine.txt").write_text("not dsconvert's")
    dsconvert(*text, "--overwrite")
    assert (out / "mine.txt").read_text() == "not dsconvert's"
    assert not list(out.rglob("*.parquet")) and list(out.rglob("train*.arrow"))


def test_a_dry_run_writes_nothing(dsconvert, tmp_path):
    output = dsconvert("images", "fixtures/photos", "--out", tmp_path / "out", "--dry-run").stdout
    assert "units" in output and not (tmp_path / "out").exists()


def test_rejects_under_strict_exit_with_1(dsconvert, tmp_path):
    dsconvert("images", "fixtures/photos", "--strict", "--out", tmp_path / "out", status=1)
    assert (tmp_path / "out/manifest.json").exists()


# Invalid commands: none writes a dataset; each exits with a status and a message that contains certain words.

def text(*options, source="fixtures/corpus", tokenizer="bytes"):
    return ["text", source, "--tokenizer", tokenizer, *options]


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (text("--text-field", "txet"), 2, ["txet"]),
        (text(tokenizer="missing.json"), 2, ["missing.json"]),
        (text(tokenizer="fixtures/photos/dunes/notes.txt"), 2, ["notes.txt"]),
        (text("--split", "train=0.9,validation=0.2"), 2, ["--split", "1"]),
        (text("--format", "csv"), 2, ["csv", "parquet"]),
        (text("--max-rejects", "0", source="fixtures/corpus"), 3, ["reject"]),
        (text(source="missing-folder"), (2, 3), ["missing-folder"]),
        (["images", "fixtures/photos", "--resize", "shorter"], 2, ["--resize"]),
        (["images", "fixtures/photos", "fixtures/photos"], 2, ["photos"]),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) and len(value) > 2 else None,
)
def test_invalid_commands_name_what_is_wrong(binary, tmp_path, args, status, words):
    out = tmp_path / "out"
    done = subprocess.run([binary, *args, "--out", out], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), done.stderr
    assert not (out / "manifest.json").exists()
    assert "panicked" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_an_empty_folder_commits_nothing(dsconvert, tmp_path):
    (tmp_path / "empty").mkdir()
    for request in (["images"], ["text", "--tokenizer", "bytes"]):
        dsconvert(*request, tmp_path / "empty", "--out", tmp_path / "out", status=3)
        assert not (tmp_path / "out/manifest.json").exists()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_output_inside_a_source_is_refused(dsconvert, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(FIXTURES / "photos/dunes", source / "dunes")
    dsconvert("images", source, "--out", source / "out", status=2)
    assert not (source / "out").exists()


def huge_png():
    """A PNG whose header declares 30,000 × 30,000 pixels, without any pixel data."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND"))


def test_each_defective_image_has_its_reject_code(dsconvert, tmp_path):
    folder = tmp_path / "defects"
    shutil.copytree(FIXTURES / "photos/dunes", folder)
    (folder / "zero.jpg").write_bytes(b"")
    (folder / "huge.png").write_bytes(huge_png())
    (folder / "lies.jpg").write_bytes(b"This is no picture, whatever its name says.\n")
    shutil.copy(FIXTURES / "photos/night/broken.jpg", folder)
    shutil.copy(FIXTURES / "photos/forest/light.jpg", folder)  # a PNG: converted
    dsconvert("images", folder, "--layout", "flat", "--max-rejects", "90%", "--out", tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert (manifest["converted"], manifest["rejected"]) == (6, 4)
    lines = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    codes = {line["origin"]: line["code"] for line in lines}
    assert codes["defects/zero.jpg"] == "empty"
    assert codes["defects/huge.png"] == "too-large"
    assert codes["defects/lies.jpg"] == "unknown-type"
    assert codes["defects/broken.jpg"] in ("truncated", "corrupt")


def test_each_defective_line_has_its_reject_code(dsconvert, tmp_path):
    lines = {
        b'{"text": "good"}': None,
        b"not json": "invalid-json",
        b'{"other": "x"}': "missing-field",
        b'{"text": null}': "missing-field",
        b'{"text": 5}': "wrong-type",
        b'{"text": "\xff"}': "invalid-utf8",
        b'{"text": ""}': "empty",
        b'["text"]': "invalid-json",
        b"": "empty",
        b'{"text": "good again"}': None,
    }
    source = tmp_path / "lines.jsonl"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    dsconvert("text", source, "--tokenizer", "bytes", "--max-rejects", "90%", "--out", tmp_path / "out")
    expected, offset = {}, 0
    for line, code in lines.items():
        if code:
            expected[f"lines.jsonl#{offset}"] = code
        offset += len(line) + 1
    rejects = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    assert {reject["origin"]: reject["code"] for reject in rejects} == expected
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["converted"] == 2


def test_two_documents_with_the_same_key_are_refused(dsconvert, tmp_path):
    source = tmp_path / "twice.jsonl"
    source.write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n{"id": 1, "text": "c"}\n')
    done = dsconvert("text", source, "--tokenizer", "bytes", "--key-field", "id", "--out", tmp_path / "out", status=3)
    assert "twice.jsonl" in done.stderr
    assert not (tmp_path / "out/manifest.json").exists()


def test_an_unreadable_file_is_a_failure_and_no_reject(dsconvert, tmp_path):
    shutil.copytree(FIXTURES / "photos/dunes", tmp_path / "dunes")
    # Not even root can read this file: a read at its start fails with an input/output error.
    (tmp_path / "dunes/disk-error.jpg").symlink_to("/proc/self/mem")
    options = ["--layout", "flat", "--follow-symlinks", "--out", tmp_path / "out"]
    done = dsconvert("images", tmp_path / "dunes", *options, status=3)
    assert "disk-error.jpg" in done.stderr
    assert not (tmp_path / "out/manifest.json").exists()


def test_an_altered_shard_does_not_verify(dsconvert, corpus_in, tmp_path):
    altered = tmp_path / "altered"
    shutil.copytree(corpus_in("msgpack").path, altered)
    shard = next(altered.glob("train/*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert shard.name in dsconvert("inspect", altered, "--verify", status=3).stdout
