"""Chats rendered by `dsconvert-chat` equal those of `transformers`, and so does what is trained of them (chat_oracle.py).

DSCONVERT_CHAT_TEMPLATES names further folders of templates, such as `trl/chat_templates` in a checkout of huggingface/trl.
"""

import json
import os
import subprocess

import pytest

import tier
from conftest import ROOT

pytest.importorskip("transformers")

import chat_oracle  # noqa: E402

OURS = ROOT / "crates/chat/tests/templates"
FOLDERS = [OURS, *filter(None, os.environ.get("DSCONVERT_CHAT_TEMPLATES", "").split(os.pathsep))]
COUNT = 300 if tier.is_exhaustive("tokenizers") else 40

# Where inferred turns differ from those in TRL, and why: README.md of dsconvert-chat.
EXPECTED = {
    "deepseekv3": {"spans"},
    "diffusion_gemma": {"into the turn of messages"},
    "gptoss": {"spans"},
    "joined": {"outside of its turn"},
    "nemotron_3_nano": {"spans"},
    "nemotron_3_super": {"spans"},
    "nemotron_3_ultra": {"spans"},
    "qwen2_5": {"spans"},
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


@pytest.mark.parametrize("path", [path for folder in FOLDERS for path in chat_oracle.templates(folder)], ids=lambda path: path.stem)
def test_chats_equal_those_of_transformers_over_folders(program, path):
    for tally in chat_oracle.compare(path, program, COUNT, seed=tier.SEED):
        if tally.kind != "a":
            assert tally.equal >= COUNT or path.stem in EXPECTED, tally.line()
        expected = EXPECTED.get(path.stem, set()) if tally.kind == "c" else set()
        unexpected = [reason for reason in tally.reasons if not any(known in reason for known in expected)]
        assert not unexpected, tally.line() + "\n" + "\n".join(tally.examples)
