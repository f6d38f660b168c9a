"""Regular expressions of a `tokenizer.json` give the ids of the Python package `tokenizers`: every construct, every
behavior of `Split`, and very long runs. Both use Oniguruma, at versions that Cargo.lock and the package determine."""

import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

import expected
import tier
import tokenizer_families
from conftest import FIXTURES, ROOT
from test_ids_against_wheel import converted, difference

CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co".split()
PROPERTIES = (
    "Han Hiragana Latin Cyrillic Arabic Thai Devanagari Hangul Greek Common Inherited Alphabetic White_Space Emoji Uppercase Letter "
    "Alnum Punct Word Space ^L InCJK_Unified_Ideographs IsHan Script=Han"
).split()
POSIX = "alpha alnum upper lower punct space print graph cntrl word digit blank xdigit ^alpha".split()
CONSTRUCTS = [
    *r"\w \W \s \S \d \D \h \H ~\b. $ ^. .$ \A. .\z .\Z . (?m:.) (?s:.) \R \X \N \O \G. \K. .\Ka \P{L}".split(),
    *(rf"\p{{{name}}}" for name in CATEGORIES + PROPERTIES),
    *(f"[[:{name}:]]" for name in POSIX),
    *r"(?i:k) (?i:s) (?i:ss) (?i:ß) (?i:ff) (?i:i) (?i)straße (?i:'ſ) (?i:\p{Lu}) (?i:[a-z]) (?i:å) (?i:μ)".split(),
    *r"[^\W\d_]+ \w+ \w+|[^\w\s]+ [\w&&[^\d]]+ (?<!\w)\d (?<=\s)\S \d(?=\b) [\p{L}--\p{Lu}] \p{L}+(?!\p{N}) (\p{L})\1".split(),
    *r"\u0041 \x{41} [一-龥] [\u4e00-\u9fff] [\U00010000-\U0010ffff] a++b (?>a|ab)b [\s\S] \t|\n|\v|\f|\r|\e|\a \x09 \011 x{,3}".split(),
    *r"[]a] [a-] \Q.\E (?#c)a [a-c&&b-d] [[a-c][x-z]] (?~b) (?<n>a)\k<n> (a)?(?(1)b|c) \p{N}{1,2}+ a{2}? (*FAIL) ( [ a** \p{Foo}".split(),
    "(?x) a b", "[ -~]",
]
TEXTS = [
    "a b\nc d\r\ne\n\nf", "\n", "a\n", "\na", "x\ny\n", "ab", "straße STRASSE ﬀ ff FF ſ s S K k", "İi ıI", "a\u0301b", "12,345.67 ²3½",
    "foo_bar-baz", "\r\nx\ry", "👨\u200d👩\u200d👧 e\u0301 🇩🇪🇫🇷", "aabb aab a\\Q.\\E (( ** x  x",
    "²6239½ _ 12345² 1234567 12345\u200d6 12345字",
]
# All code points in which differences were found, and some of every other block.
CODES = [
    *range(0x3400), *range(0x3400, 0xD800, 97), *range(0xE000, 0x30000, 89), *range(0xE0000, 0xE0200, 7), 0xF0000,
    0x10FFFF,
]
ALL = ["".join("~" + chr(code) for code in CODES[i : i + 2048]) for i in range(0, len(CODES), 2048)]

# The last is the pattern of Cohere 2, whose numbers end at a boundary of words.
SPLITS = [r"\w+", r"\b", r"[[:punct:]]", r"\s*", "(?m:a.b)|^", r"\d{1,3}(?=(?:\d{3})*\b)"]
BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]


def bytes_model():
    """BPE whose tokens are the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [c for c in range(256) if c not in printable]
    vocab = {chr(c): c for c in printable} | {chr(256 + i): c for i, c in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": None, "model": model}


def package_ids(tokenizer, text):
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException as panic:  # of the package, which dsconvert must reject
        assert type(panic).__name__ == "PanicException"
        return None


def write(file, texts):
    file.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    return file


def test_constructs_match_the_same_text_and_the_same_ones_are_refused(binary, dsconvert, tmp_path):
    texts = [*TEXTS, *ALL]
    jsonl = write(tmp_path / "texts.jsonl", texts)

    def check(number):
        pattern = CONSTRUCTS[number]
        file = tmp_path / f"{number}.json"
        normalizer = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "\u0001"}
        file.write_text(json.dumps(bytes_model() | {"normalizer": normalizer}))
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception:
            dsconvert("text", jsonl, "--tokenizer", file, "--out", tmp_path / str(number), status=2)
            return None
        ids = converted(dsconvert, tmp_path / str(number), jsonl, file)
        expected = [package_ids(tokenizer, text) for text in texts]
        wrong = [i for i, wheel in enumerate(expected) if ids.get(str(i)) != (wheel or None)]
        return f"{pattern}: {difference(texts[wrong[0]], expected[wrong[0]] or [], ids.get(str(wrong[0]), []))}" if wrong else None

    with ThreadPoolExecutor(4) as pool:
        different = [found for found in pool.map(check, range(len(CONSTRUCTS))) if found]
    assert not different, "\n".join(different)


@pytest.mark.sampled("tokenizers", one_in=3)
@pytest.mark.parametrize("pattern", SPLITS)
def test_splits_of_every_behavior_give_the_ids_of_the_package(pattern, dsconvert, tmp_path):
    texts = [*TEXTS, " ".join(TEXTS), *[text for _, text in expected.documents() if text][:30]]
    jsonl = write(tmp_path / "texts.jsonl", texts)
    for behavior in BEHAVIORS:
        for invert in [False, True]:
            tokenizer = Tokenizer.from_file(str(FIXTURES / "tokenizers" / "bpe.json"))
            split = Split(Regex(pattern), behavior, invert)
            tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
            tokenizer.normalizer = Replace(Regex(r"_\b|\Ba"), "A")
            tokenizer.no_truncation()
            tokenizer.no_padding()
            name = f"{behavior}-{invert}"
            tokenizer.save(str(tmp_path / f"{name}.json"))
            wheel = [package_ids(tokenizer, text) for text in texts]
            if not any(wheel):
                continue  # Only the empty matches of `\b` are kept.
            ids = converted(dsconvert, tmp_path / name, jsonl, tmp_path / f"{name}.json")
            for i, text in enumerate(texts):
                assert ids.get(str(i)) == (wheel[i] or None), f"{name}: {difference(text, wheel[i] or [], ids.get(str(i), []))}"


# What is repeated: white space, line ends, letters, numbers, punctuation, marks, CJK, emoji, control characters, mixtures.
CHARACTERS = (
    " ", "\t", "\u00a0", "\u3000", "\u2028", "\n", "\r", "\r\n", " \n", "a", "A", "aB", "é", "я", "ʰ", "ǅ", "字", "カ", "가",
    "7", "²", "½", "٣", "1a", "字1", "-", "!", "/", "。", "+", "_", "'", "'s", "\u0301", "a\u0301", "\u0903", "😀", "\u200d",
    "\u0000", "\u0007", "\u00ad", "\ue000",
)
COHERE2 = r"\d{1,3}(?=(?:\d{3})*\b)"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"\w+|[^\w\s]+|\s+(?!\S)|\s+"
CUSTOM = {
    "word-boundaries": [COHERE2, WORDS],
    "posix": ["[[:alpha:]]+|[[:digit:]]+|[[:punct:]]+|[[:space:]]+"],
    "lazy": [r".+?(?=\s|$)|\s+"],
    "boundary": [r"\b"],
}
# Some of them for each family; `tests/run tokenizers` runs all. Patterns in a group are run by Oniguruma, others of a
# known family by hand-written splitters.
RUNS = {
    "gpt2": [" ", "'"],
    "llama3": [" ", "\n", "7", "\u0301"],
    "qwen2": ["字"],
    "o200k": ["A", "ʰ"],
    "deepseek": ["\u0000", "カ"],
    "gpt2-group": ["a"],
    "llama3-group": [" ", "7"],
    "o200k-group": ["-"],
    "deepseek-group": ["+"],
    "cohere2": ["½"],
    "word-boundaries": ["\u200d"],
    "posix": ["!"],
    "lazy": [" "],
    "boundary": ["_"],
}


def runs_tokenizer(name):
    family, group, _ = name.partition("-group")
    if name in CUSTOM:
        return tokenizer_families.byte_level(CUSTOM[name])
    if name == "groups":
        return tokenizer_families.byte_level([COHERE2], use_regex=True)
    if group:
        return tokenizer_families.byte_level(
            [f"(?:{step})" for step in {**tokenizer_families.PATTERNS, "gpt2": [GPT2]}[family]]
        )
    return tokenizer_families.FAMILIES[next(key for key in tokenizer_families.FAMILIES if key.startswith(name))]()


def saved(tokenizer, file):
    """Writes a tokenizer to a file, from which the package reads it."""
    file.write_text(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str())
    return Tokenizer.from_file(str(file))


@pytest.mark.sampled("tokenizers", one_in=4)
@pytest.mark.parametrize("name", RUNS)
def test_a_million_equal_characters_have_the_ids_of_the_package(name, dsconvert, tmp_path):
    file = tmp_path / "tokenizer.json"
    tokenizer = saved(runs_tokenizer(name), file)
    repeated = RUNS[name]
    if tier.is_exhaustive("tokenizers"):
        # With the pattern of Cohere 2, the package takes hours for many digits.
        has_digits = name in ("cohere2", "word-boundaries")
        repeated = [char for char in CHARACTERS if not (has_digits and char in "7٣")]
    texts = [f"the dog.{char * 1_000_100}x don't 123" for char in repeated]
    jsonl = write(tmp_path / "texts.jsonl", texts)
    started = time.monotonic()
    ids = converted(dsconvert, tmp_path / "out", jsonl, file, "--engine", "fast", "--allow-nul")
    took = time.monotonic() - started
    started = time.monotonic()
    for i, (char, text) in enumerate(zip(repeated, texts, strict=True)):
        wheel = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids[str(i)] == wheel, f"{char!r}: {len(ids[str(i)])} and {len(wheel)} ids"
    wheel_took = time.monotonic() - started
    print(f"{name}: {took:.1f} s, the package {wheel_took:.1f} s")
    # Not quadratic, also on a busy machine and without optimization.
    assert took < 10 * wheel_took + 20


def test_numbers_are_divided_in_linear_time(dsconvert, tmp_path):
    """With the pattern of Cohere 2, Oniguruma, and so the package, takes hours for a million digits."""
    file = tmp_path / "tokenizer.json"
    tokenizer = saved(runs_tokenizer("groups"), file)
    words = saved(runs_tokenizer("gpt2"), tmp_path / "words.json")
    short = [
        f"{start}{digit * count}{end}" for start in ["", "a", "x "] for digit in "7٣" for count in [1, 2, 3, 4, 7, 999, 1001]
        for end in ["", ".", "a", "_", "²", "\u0301", "\u200d", " 12"]
    ]
    long = ["7" * 1_000_001 + ".", "٣" * 1_000_001 + "a"]
    ids = converted(
        dsconvert, tmp_path / "out", write(tmp_path / "texts.jsonl", short + long), file, "--engine", "fast"
    )
    for i, text in enumerate(short):
        assert ids[str(i)] == package_ids(tokenizer, text), text
    for i, text in enumerate(long, len(short)):
        digit = text[0]
        # A number at the end of a word is divided from its end.
        pieces = [text] if text[-1] == "a" else [digit * 2, *[digit * 3] * 333_333, "."]
        encoded = {piece: package_ids(words, piece) for piece in set(pieces)}
        assert ids[str(i)] == [id for piece in pieces for id in encoded[piece]]


def test_a_text_that_takes_the_package_too_many_steps_is_rejected(dsconvert, tmp_path):
    jsonl = write(tmp_path / "texts.jsonl", [f"{'a' * 60} 1", "aa1 b"])
    for engine, part in {"fast": "pre_tokenizer", "auto": "normalizer"}.items():
        file = bytes_model()
        pattern = {"pattern": {"Regex": "(a|a)*1"}}
        if part == "normalizer":
            file["normalizer"] = {"type": "Replace", "content": "b", **pattern}
        else:
            split = {"type": "Split", "behavior": "Isolated", "invert": False, **pattern}
            file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, file["pre_tokenizer"]]}
        (tmp_path / f"{part}.json").write_text(json.dumps(file))
        tokenizer = Tokenizer.from_file(str(tmp_path / f"{part}.json"))
        assert package_ids(tokenizer, f"{'a' * 60} 1") is None
        out = tmp_path / part
        ids = converted(dsconvert, out, jsonl, tmp_path / f"{part}.json", "--engine", engine)
        assert ids == {"1": package_ids(tokenizer, "aa1 b")}
        (reject,) = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
        assert reject["code"] == "unsupported" and "takes too many steps" in reject["message"]


def test_patterns_that_could_overflow_the_stack_are_refused(dsconvert, tmp_path):
    for pattern in ["(?~a" * 2000 + ")*" * 2000, "[" * 4000 + "a" + "]" * 4000]:
        file = bytes_model() | {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}}
        (tmp_path / "tokenizer.json").write_text(json.dumps(file))
        jsonl = write(tmp_path / "texts.jsonl", ["a"])
        done = dsconvert("text", jsonl, "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "out", status=2)
        assert "more than 256 groups" in done.stderr


def test_inspect_warns_of_datasets_whose_writer_ran_the_pattern_differently(dsconvert, tmp_path):
    jsonl = write(tmp_path / "texts.jsonl", ["a b 12"])
    for name, pattern, affected in [("words", r"\w+", True), ("gpt2", GPT2, False)]:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        file = bytes_model()
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, file["pre_tokenizer"]]}
        (tmp_path / f"{name}.json").write_text(json.dumps(file))
        out = tmp_path / name
        dsconvert("text", jsonl, "--tokenizer", tmp_path / f"{name}.json", "--out", out)
        manifest = out / "manifest.json"
        version = json.loads(manifest.read_text())["manifest_version"]
        if version > 2:
            assert "older dsconvert" not in dsconvert("inspect", out).stderr
            # Readers of version 1 accept a manifest without a digest.
            text = re.sub(r'("manifest_version": )\d+,\s+"digest": "\S+"', r"\g<1>1", manifest.read_text())
            manifest.write_text(text)
        for options in [[], ["--json"], ["--verify"]]:
            warned = "older dsconvert" in (stderr := dsconvert("inspect", out, *options).stderr)
            assert warned == affected and (not affected or r"\\w+" in stderr)


def test_the_library_of_the_system_is_refused(tmp_path):
    script = tmp_path / "build"
    subprocess.run(["rustc", "--edition", "2024", ROOT / "crates/tokens/build.rs", "-o", script], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RUSTONIG_")}
    for variables, refused in [
        ({}, False),
        ({"RUSTONIG_SYSTEM_LIBONIG": "1"}, True),
        ({"RUSTONIG_SYSTEM_LIBONIG": "0"}, False),
        ({"RUSTONIG_DYNAMIC_LIBONIG": "yes"}, True),
        ({"RUSTONIG_STATIC_LIBONIG": "1"}, False),
        ({"RUSTONIG_STATIC_LIBONIG": "no"}, True),
    ]:
        printed = subprocess.run([script], env=clean | variables, capture_output=True, text=True, check=True).stdout
        assert ("cargo::error=" in printed) == refused, variables
        assert printed.count("cargo::rerun-if-env-changed=RUSTONIG_") == 3
