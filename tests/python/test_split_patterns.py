"""Byte-level BPE with the split patterns of known models gives the ids of the Python package `tokenizers`."""

import json

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

import expected
from conftest import FIXTURES
from dataset import Dataset

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(suffix, numbers):
    """The pattern of models that split where the case changes."""
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}{a}{LOWER}{b}{suffix}" for a, b in ["*+", "+*"])
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"


DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + SPACES,
]
STEPS = {
    "llama3": [rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"],
    "qwen3.5": [
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
    ],
    "o200k": [cased(CONTRACTIONS + "?", r"\p{N}{1,3}")],
    "tekken": [cased("", r"\p{N}")],
    "deepseek": DEEPSEEK,
    "bloom": [r" ?[^(\s|[.,!?…。，、।۔،])]+"],
    # Numbers end at a boundary of words, which includes `²` and the zero-width joiner or not depending on the library.
    "cohere2": [r"\d{1,3}(?=(?:\d{3})*\b)", cased(CONTRACTIONS + "?", r"\p{N}{1,3}")],
    "starcoder": [Digits(individual_digits=True)],
}
TEXTS = [
    "HTMLParser parserHTML don'tX it's'x I'LL o'clock 'tis x'll'd ABCdef aBcD Ab1cD 12345 a1b22",
    "};\n// comment\n/* x */\r\n/\n./a\n\n  if (x != y) {\n\treturn a->b;  // ok\n}\n   \n end  ",
    "Größe ΟΔΥΣΣΕΥΣ ǅuro ʰx Привет, Мир! ÉCOLE e\u0301t \u0301x ½ ٣٤٥٦ Ⅷ",
    "カタ・カナ゜\r\n漢字かな交じり文。12人、3回 中文文本，混在 한국어 문장입니다 नमस्ते दुनिया ภาษาไทย",
    "²6239½ _ 12345² 1234567 12345\u200d6 12345字 12345ª 1234\u0301",
    "nul\0 \u200d👩\u200d👩\u200d👧 🇫🇷 ❤\ufe0f\u00ad \u2028x\u0085y  \u3000z",
]


@pytest.mark.parametrize("name", STEPS)
def test_ids_are_those_of_the_reference_tokenizer(name, dsconvert, protobuf, tmp_path):
    tokenizer = Tokenizer.from_file(str(FIXTURES / "tokenizers" / "bpe.json"))
    steps = [Split(Regex(step), "isolated") if isinstance(step, str) else step for step in STEPS[name]]
    tokenizer.pre_tokenizer = Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=name == "starcoder")])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    # The last text is long enough to be divided.
    texts = [*TEXTS, *(text for _, text in expected.documents() if text), " ".join(TEXTS * 300)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = tmp_path / "out"
    dsconvert("text", tmp_path / "texts.jsonl", "--tokenizer", tmp_path, "--out", out, "--engine", "fast")
    dataset = Dataset(out, protobuf)
    assert dataset.manifest["tokenizer"]["engine"]["name"] == "dsconvert byte-level BPE"
    records = dataset.records("train")
    assert len(records) == len(texts)
    for text, record in zip(texts, records):
        assert record["input_ids"] == tokenizer.encode(text, add_special_tokens=False).ids, text[:100]
