"""The scripts of docs/how-to/convert-on-many-machines.md, run as local processes."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from conftest import ROOT

GUIDE = ROOT / "docs" / "how-to" / "convert-on-many-machines.md"
OPTIONS = ["--resize", "shorter:32", "--unit-bytes", "65536"]
PARTS = 40


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(binary, tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "whole"
    run([binary, "images", ROOT / "fixtures" / "photos", "--out", out, *OPTIONS])
    return tree(out)


@pytest.fixture
def planned(binary, tmp_path):
    out = tmp_path / "out"
    run([binary, "plan", "images", ROOT / "fixtures" / "photos", "--out", out, *OPTIONS])
    return out


def environment(binary: Path, out: Path, **more: object) -> dict[str, str]:
    path = f"{binary.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OUT": str(out), **{name: str(value) for name, value in more.items()}}


def run(command, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def block(start: str) -> str:
    """The code block of the guide that contains `start`."""
    blocks = re.findall(r"^```\w+\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    [found] = [text for text in blocks if start in text]
    return found


def merged(binary: Path, out: Path) -> dict[str, bytes]:
    run([binary, "merge", out])
    return tree(out)


def in_parallel(script: str, environments) -> None:
    started = [subprocess.Popen(["sh", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for env in environments]
    for process in started:
        output, _ = process.communicate()
        assert process.returncode == 0, output.decode()


def test_the_slurm_script_gives_the_bytes_of_one_run(binary, planned, whole):
    script = block("#SBATCH")
    tasks = [environment(binary, planned, SLURM_ARRAY_TASK_ID=i, SLURM_ARRAY_TASK_COUNT=3, SLURM_CPUS_PER_TASK=1)
             for i in (1, 2, 3)]
    # Task 2 is requeued while it still runs.
    in_parallel(script, [*tasks, tasks[1]])
    assert merged(binary, planned) == whole


def test_the_xargs_command_gives_the_bytes_of_one_run(binary, planned, whole):
    in_parallel(block("xargs"), [environment(binary, planned)])
    assert merged(binary, planned) == whole


def test_the_kubernetes_job_gives_the_bytes_of_one_run(binary, planned, whole):
    job = yaml.safe_load(block("kind: Job"))
    assert job["spec"]["completions"] == PARTS
    [container] = job["spec"]["template"]["spec"]["containers"]
    shell, flag, script = container["command"]
    assert (shell, flag) == ("sh", "-c")
    in_parallel(script, [environment(binary, planned, JOB_COMPLETION_INDEX=i) for i in range(0, PARTS, 2)])
    again = run([binary, "status", planned, "--parts", PARTS])
    assert "submit again: --array=2" in again
    in_parallel(script, [environment(binary, planned, JOB_COMPLETION_INDEX=i) for i in range(1, PARTS, 2)])
    assert merged(binary, planned) == whole
