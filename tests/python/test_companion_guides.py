"""The commands and programs of the guides about added fields, run as they are printed."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch

import dsconvert
from conftest import FIXTURES, ROOT

GUIDES = ROOT / "docs/how-to"


@pytest.fixture
def run(binary, tmp_path):
    """Runs a part of a guide in a folder with `photos`."""
    shutil.copytree(FIXTURES / "photos", tmp_path / "photos")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dsconvert").symlink_to(binary)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(kind, script):
        if script.startswith("# encoder.py"):
            (tmp_path / "encoder.py").write_text(script)
            return ""
        command = ["sh", "-ec", script] if kind == "sh" else [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def parts_of(guide):
    return re.findall(r"^```(sh|python)\n(.*?)^```", (GUIDES / guide).read_text(), re.MULTILINE | re.DOTALL)


def test_latents_are_those_of_the_encoder(run, tmp_path, monkeypatch):
    printed = [run(*part) for part in parts_of("train-on-latents.md")]
    assert re.fullmatch(r"trained on \d+ batches of \(4, 8, 8\)\n", printed[-1])
    monkeypatch.syspath_prepend(tmp_path)
    encoder = importlib.import_module("encoder").Encoder("tiny")
    encoder.start(None)
    data = dsconvert.open(tmp_path / "photos-64", add=[tmp_path / "photos-latents"], decode=True)
    for record in data:
        for name, image in (("latent", record["image"]), ("latent_flipped", record["image"][:, ::-1].copy())):
            expected = encoder.encode([image])[0].to(torch.bfloat16)
            found = torch.from_numpy(record[name].view("int16").copy()).view(torch.bfloat16)
            # The convolutions of a batch may be summed in another order.
            assert torch.allclose(found.float(), expected.float(), atol=1e-2)
    manifest = json.loads((tmp_path / "photos-latents/manifest.json").read_text())
    assert manifest["options"]["convert"]["version"] == "tiny encoder 1.0, bf16"
    assert manifest["options"]["convert"]["function"]["parameters"] == {"model": "tiny"}


def test_scores_and_captions_of_a_table_are_trained_on(run, tmp_path):
    parts = parts_of("add-scores-and-captions.md")
    printed = [run(*part) for part in parts]
    assert [kind for kind, _ in parts] == ["sh", "python", "sh", "python", "sh"]
    rows = {row["key"]: row for row in pq.read_table(tmp_path / "scores.parquet").to_pylist()}
    data = dsconvert.open(tmp_path / "photos-256", add=[tmp_path / "photos-scores"])
    assert len(data) == len(rows)
    for record in data:
        assert (record["score"], record["caption"]) == (rows[record["key"]]["score"], rows[record["key"]]["caption"])
    assert len(re.findall(r"^\(\d, 64, 64, 3\) \[", printed[3], re.MULTILINE)) == -(-len(rows) // 4)
    # The other commands of the text.
    for command in re.findall(r"`(dsconvert\s+inspect[^`]*)`", (GUIDES / "add-scores-and-captions.md").read_text()):
        run("sh", " ".join(command.split()))
