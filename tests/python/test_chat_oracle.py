"""Chats rendered by `dsconvert-chat` equal those of `transformers`, and so does what is trained of them (chat_oracle.py).

The templates are ours, a sample of those in the package `trl`, and those in the folders that DSCONVERT_CHAT_TEMPLATES names.
"""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

import tier
from conftest import ROOT

pytest.importorskip("transformers")

import chat_oracle  # noqa: E402

OURS = ROOT / "crates/chat/tests/templates"
TRL = importlib.util.find_spec("trl")
PUBLISHED = chat_oracle.templates(Path(TRL.origin).parent / "chat_templates") if TRL else []
FOLDERS = [OURS, *filter(None, os.environ.get("DSCONVERT_CHAT_TEMPLATES", "").split(os.pathsep))]
COUNT = 300 if tier.is_exhaustive("tokenizers") else 40

# Where we refuse what TRL trains, and why: README.md of dsconvert-chat.
EXPECTED = {
    "diffusion_gemma": "into the turn of messages",
    "joined": "outside of its turn",
}


@pytest.fixture(scope="session")
def program():
    """The example `chats` of dsconvert-chat."""
    build = subprocess.run(
        ["cargo", "build", "--locked", "-p", "dsconvert-chat", "--example", "chats", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )
    messages = map(json.loads, build.stdout.splitlines())
    return chat_oracle.Program(next(m["executable"] for m in messages if m.get("executable")))


def compare(program, path):
    for tally in chat_oracle.compare(path, program, COUNT, seed=tier.SEED):
        # Chats of which transformers renders a part differently are not compared. Their number varies with the seed.
        least = {"a": 0, "b": 0.8 * COUNT, "c": 0.6 * COUNT}[tally.kind]
        assert tally.equal >= least or path.stem in EXPECTED, tally.line()
        expected = EXPECTED.get(path.stem) if tally.kind == "c" else None
        unexpected = [reason for reason in tally.reasons if expected is None or expected not in reason]
        assert not unexpected, tally.line() + "\n" + "\n".join(tally.examples)


@pytest.mark.parametrize(
    "path", [path for folder in FOLDERS for path in chat_oracle.templates(folder)], ids=lambda path: path.stem
)
def test_chats_equal_those_of_transformers_over_folders(program, path):
    compare(program, path)


@pytest.mark.sampled("tokenizers", one_in=8)
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_chats_equal_those_of_transformers_with_templates_of_trl(program, path):
    compare(program, path)
