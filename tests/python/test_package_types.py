"""The Python package is typed: the stub matches the native module, and the rest passes strict checks."""

import re
import subprocess
import sys

import pytest

from conftest import ROOT

# The cache is kept in the environment, because checking the types of torch and numpy takes most of the time.
PYRIGHT = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
MYPY = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{sys.prefix}/mypy-cache"]


def test_the_stub_matches_the_native_module(tmp_path):
    # Without checking NumPy and the standard library too, which takes half a minute.
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = skip\nfollow_imports_for_stubs = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", "mypy.ini", "dsconvert._native"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_of_the_package_are_complete(tmp_path):
    done = subprocess.run(
        [*MYPY, ROOT / "bindings/python/python"], cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_it_imports_no_torch(tmp_path):
    program = "import sys, dsconvert; print('torch' in sys.modules, 'pandas' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "False False True\n", done.stderr


def test_users_see_the_types(tmp_path):
    (tmp_path / "use.py").write_text(
        "import dsconvert\n"
        "dataset = dsconvert.open('out')\n"
        "reveal_type(dataset)\n"
        "reveal_type(dsconvert.open('out', 'train'))\n"
        "reveal_type(dataset['train'])\n"
        "for batch in dsconvert.Loader(dataset, batch_size=4):\n"
        "    reveal_type(batch)\n"
        "loader = dsconvert.Loader(dataset, batch_size=4, undecodable='blank')\n"
        "blank: list[int] = loader.last.blank if loader.last else []\n"
        "micro_batches: int = loader.micro_batches + dsconvert.BatchSampler([1, 2], batch_size=1).micro_batches\n"
        "dsconvert.Loader(dataset, batch_size='4')\n"
    )
    done = subprocess.run(
        [*MYPY, "use.py"], cwd=tmp_path, capture_output=True, text=True,
    )
    assert 'Revealed type is "dsconvert.dataset.Dataset"' in done.stdout
    assert done.stdout.count('Revealed type is "dsconvert.dataset.Split"') == 2
    assert 'Revealed type is "dict[str, Any]"' in done.stdout.replace("builtins.", "")
    assert '"batch_size"' in done.stdout and "Found 1 error" in done.stdout


# A program with torch. Each of its last two lines has a type error, which a checker that sees only `Any` would miss.
PROGRAM = """
import dsconvert
from torch.utils.data import DataLoader

train = dsconvert.open("out", "train", decode=True)
for batch in DataLoader(train, batch_size=4, shuffle=True, num_workers=2):
    print(batch)
DataLoader(dsconvert.open("out"), batch_size=4)
print(len(train + train), train.select(["key"]).fields, dsconvert.open("out").lengths())
DataLoader(train, batch_sampler=dsconvert.BatchSampler(train, batch_size=2))
loader = dsconvert.Loader("out", batch_size=4, transform=lambda record: record, batch_transform=dict)
DataLoader(loader.as_dataset(), batch_size=None)
info = dsconvert.batch_info()
ordinals: list[int] = info.records if info else []
DataLoader(train, batch_size="4")
loader.set_epoch("first")
"""


@pytest.mark.parametrize("checker", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_a_program_with_torch_type_checks(tmp_path, checker):
    (tmp_path / "use.py").write_text(PROGRAM)
    done = subprocess.run([*checker, "use.py"], cwd=tmp_path, capture_output=True, text=True)
    lines = {int(line) for line in re.findall(r"use\.py:(\d+)\S* (?:- )?error", done.stdout)}
    assert lines == {PROGRAM.count("\n") - 1, PROGRAM.count("\n")}, done.stdout + done.stderr
