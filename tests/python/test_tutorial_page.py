"""The tutorial "Is data loading your bottleneck?": its commands run, and print what the page shows, apart from numbers."""

import os
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.mark.sampled("examples", one_in=4)
def test_the_commands_run_and_the_outputs_have_the_form_on_the_page(binary):
    done = subprocess.run(
        [sys.executable, ROOT / "tools/tutorial", "--check"],
        env={**os.environ, "DSCONVERT_BIN": str(binary)}, capture_output=True, text=True, timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
