"""The commands of docs/how-to/add-data-every-week.md, run on a corpus and a folder of photographs that grow."""

import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import FIXTURES, ROOT

GUIDE = ROOT / "docs/how-to/add-data-every-week.md"


@pytest.fixture
def shell(binary, tmp_path):
    """Runs a script in a folder with `corpus`, `photos` and `tokenizer.json`."""
    shutil.copytree(FIXTURES / "photos", tmp_path / "photos")
    shutil.copy(FIXTURES / "tokenizers/bpe.json", tmp_path / "tokenizer.json")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dsconvert").symlink_to(binary)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(script, status=0):
        done = subprocess.run(
            ["sh", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def scripts():
    return re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def outcomes(dataset):
    manifest = json.loads((dataset / "manifest.json").read_text())
    return manifest["converted"], manifest["filtered"], manifest.get("notes", {}).get("excluded", 0)


def add(tmp_path, name, ids):
    with (tmp_path / "corpus" / name).open("a") as file:
        file.writelines(json.dumps({"text": f"Document {i} of the week."}) + "\n" for i in ids)


def test_each_week_converts_what_is_new(shell, tmp_path):
    first, later, photos, script = scripts()
    add(tmp_path, "a.jsonl", range(30))
    shell(first)
    assert outcomes(tmp_path / "tokens-1") == (30, 0, 0)
    second, third = later.splitlines()
    add(tmp_path, "a.jsonl", range(30, 35))
    add(tmp_path, "b.jsonl", range(7))
    said = shell(second)
    assert outcomes(tmp_path / "tokens-2") == (12, 30, 30)
    assert "  30 items in the excluded dataset\n" in said
    add(tmp_path, "b.jsonl", range(7, 9))
    said = shell(third)
    assert outcomes(tmp_path / "tokens-3") == (2, 42, 42)
    assert "  42 items in the excluded datasets\n" in said
    # Nothing is new.
    assert "nothing new" in shell(script, status=4)
    assert not (tmp_path / "tokens-4").exists()
    add(tmp_path, "c.jsonl", range(5))
    # What a killed run left.
    (tmp_path / "tokens-4/.dsconvert").mkdir(parents=True)
    shell(script)
    assert outcomes(tmp_path / "tokens-4") == (5, 44, 44)
    once, again = photos.splitlines()
    shell(once)
    (image, *_) = (tmp_path / "photos").rglob("*.jpg")
    shutil.copy(image, image.with_name("new.jpg"))
    shell(again)
    assert outcomes(tmp_path / "photos-2")[0] == 1


def test_the_validation_split_grows_by_hash(shell, tmp_path):
    split = re.search(r"`--split (train=0\.99,validation=0\.01)`", GUIDE.read_text())[1]
    alone = re.search(r"`--split (train=1)`", GUIDE.read_text())[1]
    add(tmp_path, "a.jsonl", range(2000))
    shell(f"dsconvert text corpus --out tokens-1 --tokenizer bytes --split {split}")
    add(tmp_path, "a.jsonl", range(2000, 4000))
    shell("dsconvert text corpus --out tokens-2 --like tokens-1 --exclude tokens-1")
    shell(f"dsconvert text corpus --out whole --tokenizer bytes --split {split}")
    records = {}
    for name in ["tokens-1", "tokens-2", "whole"]:
        splits = json.loads((tmp_path / name / "manifest.json").read_text())["splits"]
        records[name] = {split: splits[split]["records"] for split in ["train", "validation"]}
    for split in ["train", "validation"]:
        assert records["tokens-1"][split] + records["tokens-2"][split] == records["whole"][split]
    assert records["tokens-2"]["validation"] > 0
    shell(f"dsconvert text corpus --out tokens-3 --like tokens-1 --exclude tokens-1 --split {alone}")
    splits = json.loads((tmp_path / "tokens-3/manifest.json").read_text())["splits"]
    assert [name for name, split in splits.items() if split["records"]] == ["train"]
