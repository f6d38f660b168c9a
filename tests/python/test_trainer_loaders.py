"""Exports of token ids, read by the functions with which trainers load tokenized data, as published.

Their packages do not install beside the pinned torch, or need a GPU, so a variable names a folder with their source. Checked with
SkyRL (`SKYRL`) at a9564572, LLaMA-Factory (`LLAMA_FACTORY`) at ff6d4d12 and axolotl (`AXOLOTL`) at 067b021c."""

import ast
import importlib.util
import json
import logging
import os
import sys
import types
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import FIXTURES

datasets = pytest.importorskip("datasets")

CHATS = [{"prompt": "say " * (at % 7 + 1), "completion": f" done {at}" * (at % 5 + 1)} for at in range(60)]


def checkout(variable):
    """The folder that a variable names."""
    if folder := os.environ.get(variable):
        return Path(folder)
    pytest.skip(f"{variable} names no folder with the source of the trainer")


def published(path, names, **namespace):
    """Functions of a file, without the imports that only training needs."""
    tree = ast.parse(path.read_text())
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in body} == set(names)
    code = compile(ast.Module([ast.parse("from __future__ import annotations").body[0], *body], []), str(path), "exec")
    exec(code, namespace)
    return namespace


@pytest.fixture
def exported(dsconvert, tmp_path):
    """Exports pairs with masks. Returns the folder, and the ids and masks of the records."""

    def run(columns):
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CHATS))
        fields = ["--prompt-field", "prompt", "--completion-field", "completion", "--tokenizer", FIXTURES / "tokenizers/bpe.json"]
        dsconvert("text", tmp_path / "pairs.jsonl", *fields, "--format", "parquet", "--out", tmp_path / "tokens")
        dsconvert("export", tmp_path / "tokens", "--to", "hf", "--columns", columns, "--parts", "2", "--out", tmp_path / columns)
        shards = sorted((tmp_path / "tokens/train").glob("*.parquet"))
        rows = [row for shard in shards for row in pq.read_table(shard, columns=["input_ids", "assistant_masks"]).to_pylist()]
        assert len(rows) == len(CHATS) and any(0 in row["assistant_masks"] for row in rows)
        return tmp_path / columns, rows

    return run


@pytest.mark.parametrize("max_length", [None, 9])
def test_skyrl_loads_the_loss_mask(exported, monkeypatch, max_length):
    folder = checkout("SKYRL") / "skyrl/train/dataset"
    loguru = types.ModuleType("loguru")
    loguru.logger = logging.getLogger("loguru")
    monkeypatch.setitem(sys.modules, "loguru", loguru)

    def load(name):
        spec = importlib.util.spec_from_file_location(f"skyrl.train.dataset.{name}", folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    load("sft_dataset")
    out, rows = exported("loss-mask")
    read = load("pretokenized").load_from_pretokenized(str(out / "data"), max_length)
    # Rows without a token to train on are left out; they can only be too long here.
    kept = [row for row in rows if 1 in row["assistant_masks"][:max_length]]
    assert len(read) == len(kept) and (len(kept) == len(rows)) == (max_length is None)
    for found, row in zip(read, kept, strict=True):
        ids, mask = row["input_ids"][:max_length], row["assistant_masks"][:max_length]
        first = mask.index(1)
        assert found == {"input_ids": ids, "attention_mask": [1] * len(ids), "num_actions": len(ids) - first, "loss_mask": mask[first:]}


def labels_of(row):
    return [id if mark else -100 for id, mark in zip(row["input_ids"], row["assistant_masks"])]


def test_llama_factory_loads_the_labels(exported, tmp_path):
    source = checkout("LLAMA_FACTORY") / "src/llamafactory"
    out, rows = exported("labels")
    # The program of the guide.
    datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache")).save_to_disk(str(tmp_path / "saved"))
    has = published(source / "extras/misc.py", ["has_tokenized_data"], os=os)["has_tokenized_data"]
    module = published(source / "data/data_utils.py", ["get_dataset_module"], DatasetDict=datasets.DatasetDict)["get_dataset_module"]
    logger = types.SimpleNamespace(warning_rank0=print, info_rank0=print)
    names = {"has_tokenized_data": has, "get_dataset_module": module, "load_from_disk": datasets.load_from_disk, "logger": logger}
    get_dataset = published(source / "data/loader.py", ["get_dataset"], **names)["get_dataset"]
    options = types.SimpleNamespace(tokenized_path=str(tmp_path / "saved"), streaming=False)
    read = get_dataset(None, None, options, None, "sft", None)["train_dataset"]
    assert [(row["input_ids"], row["labels"]) for row in read] == [(row["input_ids"], labels_of(row)) for row in rows]


def test_axolotl_takes_the_labels_as_tokenized(exported, tmp_path):
    source = checkout("AXOLOTL") / "src/axolotl/utils/data/wrappers.py"
    out, rows = exported("labels")
    opened = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    prompter = type("UnsupportedPrompter", (), {})
    names = {"Dataset": datasets.Dataset, "UnsupportedPrompter": prompter, "LOG": logging.getLogger("axolotl")}
    wrapper = published(source, ["get_dataset_wrapper", "_is_dataset_already_tokenized"], **names)["get_dataset_wrapper"]

    class Options(dict):
        __getattr__ = dict.get

    # `type:` is empty, as the guide says.
    read, found = wrapper(Options(path=str(out), type=None), None, Options(), None, opened)
    assert read is opened and isinstance(found, prompter)
    assert [(row["input_ids"], row["labels"]) for row in read] == [(row["input_ids"], labels_of(row)) for row in rows]
