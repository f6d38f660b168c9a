"""Ids of every family of tokenizers equal those of the Python package `tokenizers`, at the version that the docs name.

The package is built with different JSON parser features than the crate inside dsconvert and contains its own build of
Oniguruma, so it is an independent oracle.
"""

import json
from importlib.metadata import version

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

import sample_texts
import tier
import tokenizer_families
from conftest import ROOT

ADVERSARIAL = 6_000
SEED = 20_261_120
SHOWN = 5
# Each engine encodes one in this many documents.
STEPS = {"fast": 1, "reference": 8}


def converted(dsconvert, out, jsonl, tokenizer, *options):
    """Converts the documents of `jsonl` and returns their ids by key. A document without tokens has none."""
    # Of short adversarial texts, any share may have no tokens.
    common = ["--tokenizer", tokenizer, "--format", "arrow", "--key-field", "id", "--max-rejects", "100%", "--quiet"]
    dsconvert("text", jsonl, "--out", out, *common, *options)
    ids = {}
    for shard in sorted((out / "train").iterdir()):
        with pa.memory_map(str(shard)) as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all().select(["key", "input_ids"])
        ids.update(zip(table["key"].to_pylist(), table["input_ids"].to_pylist()))
    return ids


def difference(text, wheel, ours):
    """Describes where the ids of a text differ."""
    at = next((i for i, (a, b) in enumerate(zip(wheel, ours)) if a != b), min(len(wheel), len(ours)))
    return f"from token {at}: package {wheel[at : at + 8]}, dsconvert {ours[at : at + 8]} for {text[:300]!r}"


def test_the_package_is_of_the_version_that_the_docs_name():
    assert f"`tokenizers` at version {version('tokenizers')}, as published for Python" in (ROOT / "docs/reference/text.md").read_text()


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_ids_are_those_of_the_package(name, dsconvert, tmp_path):
    made = tokenizer_families.FAMILIES[name]()
    file = tmp_path / "tokenizer.json"
    file.write_text(made if isinstance(made, str) else made.to_str())
    # Loaded from the file as by any user: the trained object may be more precise than the file.
    tokenizer = Tokenizer.from_file(str(file))
    added = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    texts = sample_texts.documents(ADVERSARIAL, added, SEED)
    expected = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    documents = list(enumerate(zip(texts, expected)))

    different = []
    for engine, step in STEPS.items():
        if engine == "fast" and name in tokenizer_families.WITHOUT_ENGINE:
            engine = "auto"
        jsonl = tmp_path / f"{engine}.jsonl"
        jsonl.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, (text, _) in documents[::step]))
        ids = converted(dsconvert, tmp_path / engine, jsonl, file, "--special-in-text", "parse", "--engine", engine)
        for i, (text, wheel) in documents[::step]:
            ours = ids.get(str(i), [])
            if ours != wheel:
                different.append(f"--engine {engine}: {difference(text, wheel, ours)}")
    assert not different, f"{len(different)} of {len(texts)} documents:\n" + "\n".join(different[:SHOWN])
    tier.report(f"tokenizers: {len(texts)} documents with each of {len(tokenizer_families.FAMILIES)} families")


@pytest.mark.parametrize(
    "name", ["gpt2", "llama3-ignore-merges", "llama2-added", "nllb-bpe", "bert-cased", "unigram-tied"]
)
def test_special_tokens_in_text_are_encoded_like_in_the_package(name, dsconvert, tmp_path):
    made = tokenizer_families.FAMILIES[name]()
    file = tmp_path / "tokenizer.json"
    file.write_text(made if isinstance(made, str) else made.to_str())
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.encode_special_tokens = True
    tokens = list(tokenizer.get_added_tokens_decoder().values())
    texts = sample_texts.adversarial(ADVERSARIAL // 5, [token.content for token in tokens], SEED + tier.SEED)
    # A special token that is also a piece of the model is the one difference that the docs name.
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    texts = sample_texts.without(
        texts, [token.content for token in tokens if token.special and token.content in vocabulary]
    )
    assert len(texts) > ADVERSARIAL // 10
    jsonl = tmp_path / "texts.jsonl"
    jsonl.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    ids = converted(dsconvert, tmp_path / "out", jsonl, file)
    wheel = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    different = [
        difference(text, a, b) for i, (text, a) in enumerate(zip(texts, wheel)) if (b := ids.get(str(i), [])) != a
    ]
    assert not different, f"{len(different)} of {len(texts)} documents:\n" + "\n".join(different[:SHOWN])
