"""Ids from tiktoken files equal those of the Python package `tiktoken`, for ranks that this test trains."""

import base64
import hashlib
import json
import re
from functools import cache

import pytest
import tiktoken
from tiktoken_ext import openai_public
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

import sample_texts
from conftest import ROOT
from test_ids_against_wheel import converted, difference

ADVERSARIAL = 8_000
SEED = 20_261_123
SHOWN = 5
NAMES = ["cl100k_base", "o200k_base", "p50k_base"]


def published(name):
    """The parameters of an encoding in the package, and the URL and hash of its file, which is not fetched."""
    requests = []

    def record_request(address, expected_hash=None, **_):
        requests.append((address, expected_hash))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", record_request)
        patch.setattr(
            openai_public, "data_gym_to_mergeable_bpe_ranks",
            lambda vocab_bpe_file, vocab_bpe_hash, **_: record_request(vocab_bpe_file, vocab_bpe_hash),
        )
        encoding = openai_public.ENCODING_CONSTRUCTORS[name]()
    ((address, sha256),) = requests
    return encoding, address, sha256


@cache
def ranks(name):
    """Ranks that byte-pair encoding learns with the split pattern of the encoding."""
    pattern = published(name)[0]["pat_str"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False, initial_alphabet=ByteLevel.alphabet())
    tokenizer.train_from_iterator(sample_texts.prose(400_000), trainer)
    printable = [c for c in range(256) if chr(c).isprintable() and chr(c) != " "]
    others = [c for c in range(256) if c not in printable]
    byte_of = {chr(c): c for c in printable} | {chr(256 + i): c for i, c in enumerate(others)}
    tokens = sorted((id, bytes(byte_of[c] for c in token)) for token, id in tokenizer.get_vocab().items())
    return {token: id for id, token in tokens}


def write(file, ranks):
    file.write_bytes(
        b"".join(base64.b64encode(token) + b" " + str(rank).encode() + b"\n" for token, rank in ranks.items())
    )
    return file


def mismatches(dsconvert, tmp_path, encoding, tokenizer, policy):
    specials = sorted(encoding.special_tokens_set)
    texts = sample_texts.documents(ADVERSARIAL, [*specials, "ing"], SEED)
    jsonl = tmp_path / "texts.jsonl"
    jsonl.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    ids = converted(dsconvert, tmp_path / policy, jsonl, tokenizer, "--special-in-text", policy)
    encode = {"text": encoding.encode_ordinary, "parse": lambda text: encoding.encode(text, allowed_special="all")}[policy]
    # A document without tokens has no record.
    pairs = [(text, encode(text), ids.get(str(i), [])) for i, text in enumerate(texts)]
    different = [difference(text, package, ours) for text, package, ours in pairs if package != ours]
    return f"{len(different)} of {len(texts)} documents:\n" + "\n".join(different[:SHOWN]) if different else None


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_package(name, dsconvert, tmp_path):
    details = published(name)[0]
    encoding = tiktoken.Encoding(
        name, pat_str=details["pat_str"], mergeable_ranks=ranks(name), special_tokens=details["special_tokens"]
    )
    by_name = write(tmp_path / f"{name}.tiktoken", ranks(name))
    assert not (why := mismatches(dsconvert, tmp_path, encoding, by_name, "text")), why
    named = write(tmp_path / "mine.txt", ranks(name))
    assert not (why := mismatches(dsconvert, tmp_path, encoding, f"{name}:{named}", "parse")), why


def test_tokens_that_start_with_a_line_break_match_at_the_end_of_a_text(dsconvert, tmp_path):
    """The pattern of the package keeps trailing whitespace together; the usual one of `tokenizer.json` does not."""
    details = published("cl100k_base")[0]
    more = {token: 3000 + i for i, token in enumerate([b"\n ", b"\n  ", b"\r\n\t", b"\n\xc2\xa0"])}
    both = {**ranks("cl100k_base"), **more}
    encoding = tiktoken.Encoding(
        "cl100k_base", pat_str=details["pat_str"], mergeable_ranks=both, special_tokens=details["special_tokens"]
    )
    assert 3000 in encoding.encode_ordinary("end\n ")
    file = write(tmp_path / "cl100k_base.tiktoken", both)
    assert not (why := mismatches(dsconvert, tmp_path, encoding, file, "text")), why


@pytest.mark.parametrize("name", [*NAMES, "r50k_base", "gpt2"])
def test_encodings_are_those_of_the_package(name, dsconvert, tmp_path, monkeypatch):
    details, address, sha256 = published(name)
    source = (ROOT / "crates/tokens/src/tiktoken/encodings.rs").read_text()
    (entry,) = re.findall(rf'TiktokenEncoding {{\s+name: "{name}",.*?\n    }},', source, re.DOTALL)
    assert address in entry and sha256 in entry
    tokens = {token: int(id.replace("_", "")) for token, id in re.findall(r'\("(<.*?>)", ([\d_]+)\)', entry)}
    if "END_OF_TEXT," in entry:
        tokens["<|endoftext|>"] = int(re.search(r"END_OF_TEXT, ([\d_]+)", entry).group(1).replace("_", ""))
    assert tokens == details["special_tokens"]
    patterns = source + (ROOT / "crates/tokens/src/engine/fast/split/pattern.rs").read_text()
    assert f'r"{details["pat_str"]}"' in patterns
    # The cache has the path of the package, and a file other than the published one is refused.
    cached = tmp_path / hashlib.sha1(address.encode()).hexdigest()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    text = tmp_path / "a.txt"
    text.write_text("text")
    missing = dsconvert("text", text, "-t", name, "--out", tmp_path / "out", status=2)
    assert str(cached) in missing.stderr and "tiktoken.get_encoding" in missing.stderr
    cached.write_text("damaged")
    damaged = dsconvert("text", text, "-t", name, "--out", tmp_path / "out", status=2)
    assert f"this is not the published file of {name}" in damaged.stderr


def test_a_cached_model_of_the_hub_is_found_by_its_name(dsconvert, tmp_path, monkeypatch):
    from huggingface_hub import constants, file_download

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / file_download.repo_folder_name(repo_id="org/model", repo_type="model")
    revision = "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / constants.DEFAULT_REVISION).write_text(revision)
    (folder / "blobs").mkdir()
    (folder / "snapshots" / revision).mkdir(parents=True)
    blob = folder / "blobs" / "abc"
    blob.write_bytes((ROOT / "fixtures/tokenizers/bpe.json").read_bytes())
    (folder / "snapshots" / revision / "tokenizer.json").symlink_to("../../blobs/abc")
    # The client of the Hub finds the file, so the layout is right.
    found = file_download.try_to_load_from_cache("org/model", "tokenizer.json", cache_dir=tmp_path / "hub")
    assert found and (tmp_path / "hub") in type(blob)(found).parents
    text = tmp_path / "a.txt"
    text.write_text("text")
    dsconvert("text", text, "-t", "org/model", "--out", tmp_path / "out", "--quiet")
    assert (tmp_path / "out/tokenizer.json").read_bytes() == blob.read_bytes()
    missing = dsconvert("text", text, "-t", "org/other", "--out", tmp_path / "more", status=2)
    assert "models--org--other" in missing.stderr and "save_pretrained" in missing.stderr
