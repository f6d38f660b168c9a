"""The commands and programs of the guide about scores and captions, run as they are printed."""

import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq

import dsconvert
from conftest import FIXTURES, ROOT

GUIDE = ROOT / "docs/how-to/add-scores-and-captions.md"


def test_scores_and_captions_of_a_table_are_trained_on(binary, tmp_path):
    shutil.copytree(FIXTURES / "photos", tmp_path / "photos")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dsconvert").symlink_to(binary)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(kind, script):
        command = ["sh", "-ec", script] if kind == "sh" else [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    parts = re.findall(r"^```(sh|python)\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    printed = [run(*part) for part in parts]
    assert [kind for kind, _ in parts] == ["sh", "python", "sh", "python", "sh"]
    rows = {row["key"]: row for row in pq.read_table(tmp_path / "scores.parquet").to_pylist()}
    data = dsconvert.open(tmp_path / "photos-256", add=[tmp_path / "photos-scores"])
    assert len(data) == len(rows)
    for record in data:
        assert (record["score"], record["caption"]) == (rows[record["key"]]["score"], rows[record["key"]]["caption"])
    assert len(re.findall(r"^\(\d, 64, 64, 3\) \[", printed[3], re.MULTILINE)) == -(-len(rows) // 4)
    # The other commands of the text.
    for command in re.findall(r"`(dsconvert\s+inspect[^`]*)`", GUIDE.read_text()):
        run("sh", " ".join(command.split()))
