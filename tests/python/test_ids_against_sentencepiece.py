"""Ids from SentencePiece `.model` files equal those of the Python package `sentencepiece`, for any training options."""

import io
import json
from functools import cache

import pytest
import sentencepiece
from tokenizers import Tokenizer

import sample_texts
from test_ids_against_wheel import converted, difference

ADVERSARIAL = 3_000
SEED = 20_261_122
SHOWN = 5

# Symbols that start or end inside words, contain one another, or contain whitespace.
SYMBOLS = ["<sep>", "<sep><", "ing", "\u00e9\u00e9", "<a b>", "\u2581the"]
MODELS = {
    "unigram-nfkc": dict(model_type="unigram"),
    "unigram-nfkc-bytes": dict(model_type="unigram", byte_fallback=True),
    "unigram-identity-symbols": dict(
        model_type="unigram", normalization_rule_name="identity", user_defined_symbols=SYMBOLS, byte_fallback=True
    ),
    "unigram-folding": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", user_defined_symbols=SYMBOLS),
    "unigram-spaces-kept": dict(
        model_type="unigram", remove_extra_whitespaces=False, add_dummy_prefix=False, allow_whitespace_only_pieces=True
    ),
    "unigram-suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True),
    "unigram-across-words": dict(model_type="unigram", split_by_whitespace=False, normalization_rule_name="nfkc"),
    "bpe-llama": dict(
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, split_digits=True,
    ),
    "bpe-gemma": dict(
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=False, user_defined_symbols=["\n\n", "  ", "    ", "<h1>", *SYMBOLS],
    ),
    "bpe-nfkc": dict(model_type="bpe"),
    "bpe-nfkc-symbols": dict(model_type="bpe", user_defined_symbols=SYMBOLS, control_symbols=["<ctl>"]),
    "bpe-suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, normalization_rule_name="nmt_nfkc_cf"),
    "bpe-across-words": dict(model_type="bpe", split_by_whitespace=False, normalization_rule_name="identity"),
}


@cache
def model(name):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            [line for text in sample_texts.prose(250_000) for line in text.splitlines() if line.strip()]
        ),
        model_writer=written, vocab_size=2500, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, num_threads=2,
        **MODELS[name],
    )
    return written.getvalue()


def texts_for(options):
    added = [*options.get("user_defined_symbols", ["ing"]), "<s>", "</s>", "<unk>", "<0x0A>"]
    texts = sample_texts.documents(ADVERSARIAL, added, SEED)
    # Long documents, because a Unigram model accumulates scores over a whole document.
    long = "\n".join(sample_texts.natural())
    return [*texts, long[:400_000], long[:50_000][::-1]]


def mismatches(dsconvert, tmp_path, name, file, *options):
    """Describes the documents whose ids from `file` differ from those of the model `name`; None if there are none."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model(name))
    texts = texts_for(MODELS[name])
    jsonl = tmp_path / "texts.jsonl"
    jsonl.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    ids = converted(dsconvert, tmp_path / "out", jsonl, file, *options)
    package = processor.encode(texts, out_type=int, num_threads=2)
    # A document without tokens has no record.
    different = [
        difference(text, a, b) for i, (text, a) in enumerate(zip(texts, package)) if (b := ids.get(str(i), [])) != a
    ]
    return f"{len(different)} of {len(texts)} documents:\n" + "\n".join(different[:SHOWN]) if different else None


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_the_package(name, dsconvert, tmp_path):
    file = tmp_path / "tokenizer.model"
    file.write_bytes(model(name))
    assert not (why := mismatches(dsconvert, tmp_path, name, file)), why


@pytest.mark.parametrize("name", ["unigram-nfkc", "bpe-llama", "bpe-gemma"])
def test_the_stored_tokenizer_loads_elsewhere_and_encodes_like_the_model(name, dsconvert, tmp_path):
    file, out = tmp_path / "some.model", tmp_path / "first"
    file.write_bytes(model(name))
    text = tmp_path / "a.txt"
    text.write_text("A text with an \u00e9 and  \u4e2d.")
    dsconvert("text", text, "-t", tmp_path, "--out", out, "--add-bos", "--add-eos", "--format", "arrow", "--quiet")
    manifest = json.loads((out / "manifest.json").read_text())["tokenizer"]
    assert manifest["engine"]["name"] == manifest["reference"]["name"] == "dsconvert SentencePiece"
    assert (manifest["bos"]["token"], manifest["eos"]["token"]) == ("<s>", "</s>")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model(name))
    stored = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert stored.get_vocab_size() == processor.get_piece_size()
    # For simple text, even the ids are the same.
    words = "the quick brown fox is not lazy"
    ids = processor.encode(words, out_type=int)
    assert stored.encode(words, add_special_tokens=False).ids == ids and stored.decode(ids) == words
    assert not (why := mismatches(dsconvert, tmp_path, name, out / "tokenizer.json")), why
