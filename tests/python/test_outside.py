"""`tests/outside`, which compares dsconvert with other readers on files of other projects."""

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from conftest import ROOT


def outside(binary, folder, *options):
    environment = {**os.environ, "DSCONVERT_BIN": str(binary), "DSCONVERT_OUTSIDE": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "tests/outside", *options, folder], env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def test_it_counts_what_is_equal_and_names_what_is_not(binary, tmp_path):
    folder = tmp_path / "suite"
    (folder / "test_parsing").mkdir(parents=True)
    Image.radial_gradient("L").save(folder / "a.png")
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:200])
    Image.radial_gradient("L").convert("RGB").save(folder / "a.ppm")
    Image.radial_gradient("L").save(folder / "a.jp2")
    pq.write_table(pa.table({"text": ["alpha", None, "beta"], "number": [1, 2, 3]}), folder / "a.parquet")
    for name, content in {"y_array": "[1]", "n_open": "[1", "i_exponent": "1e999"}.items():
        (folder / f"test_parsing/{name}.json").write_text(content)
    status, printed = outside(binary, folder, "--page", tmp_path / "page.md")
    assert status == 0, printed
    page = (tmp_path / "page.md").read_text()
    assert "| PNG | gray | 1 |  |  |  |" in page and "| JPEG 2000 | gray |  |  |  | 1 |" in page
    assert "Pillow reads 3 of the files. dsconvert converts 2 of them and refuses 1." in page
    assert "opj_decompress" in page and "`a.jp2`" in page
    assert "| PNG | 1 | 0 | 0 | 0 | 0 | 1 |" in printed
    assert "| PPM | 1 | 0 | 0 | 0 | 0 | 0 |" in printed
    assert "| JPEG 2000 | 0 | 0 | 0 | 1 | 0 | 0 |" in printed and "only Pillow: a.jp2: unsupported: " in printed
    assert "| parquet | 1 | 0 | 0 | 0 | 0 |" in printed
    assert "| n | 0 | 1 | 0 | 0 |" in printed and "| y | 1 | 0 | 0 | 0 |" in printed
    (folder / "test_parsing/n_array.json").write_text("[1]")
    status, printed = outside(binary, folder)
    assert status == 1 and "read: n_array.json" in printed
