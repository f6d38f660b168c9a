"""Small tokenizers of every family in `docs/explanation/tokenizer-engines.md`, trained with `tokenizers`."""

import base64
import io
import json
import struct
from functools import cache

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Sequence, Split

import sample_texts

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
META = "\u2581"


def cased(suffix, numbers):
    """The pattern of models that split where the case changes."""
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}{a}{LOWER}{b}{suffix}" for a, b in ["*+", "+*"])
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"


def llama3(numbers):
    return rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"


PATTERNS = {
    "llama3": [llama3(r"\p{N}{1,3}")],
    "qwen2": [llama3(r"\p{N}")],
    "qwen3.5": [
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"
    ],
    "o200k": [cased(CONTRACTIONS + "?", r"\p{N}{1,3}")],
    "tekken": [cased("", r"\p{N}")],
    "deepseek": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
        + BLANKS,
    ],
    "bloom": [r" ?[^(\s|[.,!?…。，、।۔،])]+"],
    # Numbers end at a boundary of words, which includes `²` and the zero-width joiner or not depending on the library.
    "cohere2": [r"\d{1,3}(?=(?:\d{3})*\b)", cased(CONTRACTIONS + "?", r"\p{N}{1,3}")],
}

# Added tokens of every kind. Those that depend on adjacent characters are in separate tokenizers, because a document
# with one of them is encoded by the reference.
PLAIN = [
    AddedToken("<|endoftext|>", special=True, normalized=False),
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<tool>", special=False, normalized=False),
    AddedToken("<|endof", special=False, normalized=False),
    AddedToken("    ", special=False, normalized=False),
]
NORMALIZED = [
    AddedToken("<Dog>", special=False, normalized=True),
    AddedToken("caf\u00e9", special=False, normalized=True),
]
NEIGHBORS = [
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("<right>", special=False, normalized=False, rstrip=True),
    AddedToken("quick", special=False, normalized=True, single_word=True),
    AddedToken("<both>", special=False, normalized=True, lstrip=True, rstrip=True, single_word=True),
]
MASK = [AddedToken("<mask>", special=True, normalized=False, lstrip=True)]
# Special tokens that the file marks as `normalized`, some of which overlap or are changed by the normalizer.
LANGUAGES = [
    AddedToken(token, special=True, normalized=True) for token in ["eng_Latn", "kab_Latn", "b_La", "ｔａｍ_Taml", "<s>", "<pad>"]
]


def training():
    return sample_texts.prose(400_000)


@cache
def byte_level_model():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False, initial_alphabet=ByteLevel.alphabet())
    tokenizer.train_from_iterator(training(), trainer)
    return tokenizer.to_str()


def byte_level(
    steps=(), use_regex=False, normalizer=None, added=PLAIN, ignore_merges=False, prefix_space=False, more=()
):
    file = json.loads(byte_level_model())
    file["model"]["ignore_merges"] = ignore_merges
    tokenizer = Tokenizer.from_str(json.dumps(file))
    steps = [Split(Regex(step), "isolated") if isinstance(step, str) else step for step in steps]
    last = ByteLevel(add_prefix_space=prefix_space, use_regex=use_regex)
    tokenizer.pre_tokenizer = Sequence([*steps, last]) if steps else last
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([*added, *more])
    return tokenizer


@cache
def char_model(splits):
    """BPE over characters with byte fallback; with `splits`, no token has a space after its first character."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Metaspace(split=splits)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, special_tokens=tokens, limit_alphabet=900, max_token_length=12
    )
    tokenizer.train_from_iterator(training(), trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    return json.dumps(file)


def char_bpe(normalizer=None, pre_tokenizer=None, splits=True, added=()):
    tokenizer = Tokenizer.from_str(char_model(splits))
    if normalizer:
        tokenizer.normalizer = normalizer
    # The property cannot be set to None, so the file is edited.
    file = json.loads(tokenizer.to_str())
    file["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens([*added])
    return tokenizer


@cache
def wordpiece_model():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=3000, show_progress=False, limit_alphabet=900,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    tokenizer.train_from_iterator(training(), trainer)
    return tokenizer.to_str()


def wordpiece(normalizer, pre_tokenizer=None, added=()):
    tokenizer = Tokenizer.from_str(wordpiece_model())
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens([*added])
    return tokenizer


@cache
def unigram_model():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=3000, show_progress=False, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"],
        max_piece_length=10
    )
    tokenizer.train_from_iterator(training(), trainer)
    return tokenizer.to_str()


def unigram(normalizer=None, pre_tokenizer=None, added=(), byte_fallback=False, score=None, vocab=()):
    """`score(number, piece)` replaces the score of each piece."""
    file = json.loads(unigram_model())
    model = file["model"]
    if score:
        pieces = enumerate(piece for piece, _ in model["vocab"])
        model["vocab"] = [[piece, score(number, piece)] for number, piece in pieces]
    model["vocab"] += vocab
    if byte_fallback:
        model["byte_fallback"] = True
        model["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    file["normalizer"] = normalizer
    return with_scores(file, pre_tokenizer, added)


def with_scores(file, pre_tokenizer=None, added=()):
    """The text of a file with exactly these scores, which the package would change by reading and writing them."""
    tokenizer = Tokenizer.from_str(json.dumps(file))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens([*added])
    written = json.loads(tokenizer.to_str())
    written["model"]["vocab"] = file["model"]["vocab"]
    return json.dumps(written)


def tied(number, piece):
    """Scores that make all segmentations of a word equally likely if parsed exactly, which the package does not do."""
    return -2.8483543395996094 * len(piece)


def by_length(number, piece):
    """The same, with scores whose sums are not exact."""
    return -0.7123456789012345 * len(piece)


def precompiled(pairs):
    """A `Precompiled` normalizer that replaces each key by its value: a double array in which no two blocks overlap."""
    block = 256
    units, values = [0] * (2 * block), b""
    units[0] = block << 10
    for key, value in pairs:
        base = block
        data = key.encode()
        for i, byte in enumerate(data):
            at = base + byte
            if units[at] == 0:
                child = len(units)
                units += [0] * block
                units[at] = byte | (at ^ child) << 10
            base = at ^ units[at] >> 10
            if i + 1 == len(data):
                units[at] |= 1 << 8
                units[base] = len(values)
        values += value.encode() + b"\0"
    blob = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + values
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def nmt_nfkc():
    """Part of the character map that T5 and XLM-R come with."""
    import unicodedata

    pairs = [(c, " ") for c in "\t\n\r\u00a0\u2003\u2028\u3000\u200b"] + [
        (chr(c), "") for c in [*range(1, 9), 0x7F, 0x9F, 0xAD]
    ]
    codes = [*range(0xA0, 0x180), *range(0x2070, 0x20A0), *range(0x2100, 0x2190), *range(0x3300, 0x3360), *range(0xFB00, 0xFB07),
             *range(0xFF01, 0xFF60)]
    seen = {key for key, _ in pairs}
    for char in map(chr, codes):
        normal = unicodedata.normalize("NFKC", char)
        if normal != char and char not in seen:
            pairs.append((char, normal))
    return precompiled([*pairs, ("e\u0301", "\u00e9"), ("\ufdfa", "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647")])


@cache
def trained_charsmap():
    """The whole character map of SentencePiece's `nmt_nfkc`, as XLM-R, NLLB, Pegasus and most others have it."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training()[::8]), model_writer=out, vocab_size=1000, normalization_rule_name="nmt_nfkc",
        character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    blob = model.normalizer_spec.precompiled_charsmap
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def strip(left, right):
    return {"type": "Strip", "strip_left": left, "strip_right": right}


def collapse(content):
    return replace({"Regex": " {2,}"}, content)


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def in_order(*parts):
    return {"type": "Sequence", "normalizers": [*parts]}


def word_level(pre_tokenizer, normalizer=None, added=()):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.WordLevelTrainer(vocab_size=3000, show_progress=False, special_tokens=["[UNK]", "[CLS]"])
    tokenizer.train_from_iterator(training(), trainer)
    tokenizer.add_tokens([*added])
    return tokenizer


def clip():
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(pattern), "removed", invert=True), ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=2000, show_progress=False, end_of_word_suffix="</w>", initial_alphabet=ByteLevel.alphabet(),
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
    )
    tokenizer.train_from_iterator(training(), trainer)
    # The published vocabulary has every byte as the end of a word, too.
    file = json.loads(tokenizer.to_str())
    vocab = file["model"]["vocab"]
    for byte in sorted(ByteLevel.alphabet()):
        vocab.setdefault(f"{byte}</w>", len(vocab))
    return json.dumps(file)


def falcon():
    """Splits words again after the byte-level step."""
    tokenizer = Tokenizer.from_str(byte_level_model())
    threes = Split(Regex("[0-9][0-9][0-9]"), "isolated")
    tokenizer.pre_tokenizer = Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            ByteLevel(add_prefix_space=False),
            Digits(individual_digits=False),
            threes,
        ]
    )
    tokenizer.add_tokens(PLAIN)
    return tokenizer


# Bytes that never occur in UTF-8, and more bytes for which published vocabularies have no token: those of SmolLM 2 and
# Falcon (control characters), and of Hunyuan (carriage return). 0xF0 starts emoji, 0xE3 Japanese and Chinese characters.
NEVER = [0xC0, 0xC1, *range(0xF5, 0x100)]
CONTROLS = [*NEVER, *range(9), 0x0B, *range(0x0E, 0x20), 0x7F]
GAPS = [*CONTROLS, 0x0D, 0xE3, 0xF0, ord("q")]


def alphabet():
    """The printable characters that represent the bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + number) for number, byte in enumerate(others)}


def without_bytes(made, missing, more=(), **settings):
    """A byte-level BPE tokenizer without the tokens that contain one of the bytes, and with new ids."""
    file = json.loads(made if isinstance(made, str) else made.to_str())
    model = file["model"]
    chars = {alphabet()[byte] for byte in missing}
    special = {token["content"] for token in file["added_tokens"]}
    kept = [token for token in model["vocab"] if token in special or not chars & set(token)]
    model["vocab"] = {token: number for number, token in enumerate([*kept, *more])}
    model["merges"] = [pair for pair in model["merges"] if not chars & set("".join(pair))]
    model |= settings
    # Added tokens that are not in the vocabulary get the next ids.
    others = [token for token in file["added_tokens"] if token["content"] not in model["vocab"]]
    for token in file["added_tokens"]:
        token["id"] = model["vocab"].get(token["content"])
    for number, token in enumerate(others, len(model["vocab"])):
        token["id"] = number
    file["added_tokens"].sort(key=lambda token: token["id"])
    return json.dumps(file)


def chatglm():
    """Writes a marker as a space, and splits at the marker, which is gone by then."""
    file = json.loads(char_model(False))
    marker = {"String": "<!dummy-prefix!>"}
    file["normalizer"] = in_order(replace(marker, META), META_FILE)
    file["pre_tokenizer"] = {"type": "Split", "pattern": marker, "behavior": "MergedWithNext", "invert": False}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens(PLAIN[:3])
    return tokenizer


def openai_gpt():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, show_progress=False, end_of_word_suffix="</w>", limit_alphabet=400, special_tokens=["<unk>"]
    )
    tokenizer.train_from_iterator(training(), trainer)
    return tokenizer


def bigbird(normalizer=None, added=(), **settings):
    """SentencePiece BPE without byte fallback: adjacent unknown characters are one token."""
    file = json.loads(char_model(True))
    file["model"] |= {"byte_fallback": False, **settings}
    file["normalizer"] = normalizer or collapse(" ")
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens([*added])
    return tokenizer


N = normalizers
PREPEND = N.Sequence([N.Prepend(META), N.Replace(" ", META)])
META_FILE = replace({"String": " "}, META)
QUOTES = [replace({"String": "``"}, '"'), replace({"String": "''"}, '"')]
XLM_R = [pre_tokenizers.WhitespaceSplit(), Metaspace()]

# Functions that return a tokenizer, or the text of its file.
FAMILIES = {
    # Byte-level BPE.
    "gpt2": lambda: byte_level(use_regex=True),
    "gpt-neox": lambda: byte_level(use_regex=True, normalizer=N.NFC(), more=NORMALIZED),
    "roberta": lambda: byte_level(use_regex=True, prefix_space=True, more=NEIGHBORS),
    "starcoder": lambda: byte_level([Digits(individual_digits=True)], use_regex=True),
    "smollm": lambda: byte_level([Digits(individual_digits=True)], use_regex=True, normalizer=N.NFC()),
    "numbers": lambda: byte_level([r"\p{N}"], use_regex=True),
    "llama3-ignore-merges": lambda: byte_level(PATTERNS["llama3"], ignore_merges=True),
    "qwen2-nfc": lambda: byte_level(PATTERNS["qwen2"], normalizer=N.NFC()),
    **{name: lambda steps=steps: byte_level(steps) for name, steps in PATTERNS.items()},
    "falcon": falcon,
    "smollm-gaps": lambda: without_bytes(byte_level([Digits(individual_digits=True)], use_regex=True), CONTROLS),
    "falcon-gaps": lambda: without_bytes(falcon(), CONTROLS),
    "gaps-never": lambda: without_bytes(byte_level(PATTERNS["qwen2"], normalizer=N.NFC()), NEVER),
    "gaps-dropped": lambda: without_bytes(byte_level(PATTERNS["llama3"]), GAPS),
    "gaps-unknown": lambda: without_bytes(
        byte_level(use_regex=True, more=NORMALIZED), GAPS, ["<unk>"], unk_token="<unk>"
    ),
    "gaps-fused": lambda: without_bytes(byte_level(PATTERNS["tekken"]), GAPS, unk_token="A", fuse_unk=True),
    "gaps-ignore-merges": lambda: without_bytes(
        byte_level(PATTERNS["o200k"], more=NEIGHBORS), GAPS, ["qu", "\u010d\u010a", "\u0120quick"], ignore_merges=True),
    "gaps-byte-fallback": lambda: without_bytes(
        byte_level(PATTERNS["deepseek"]), GAPS, [f"<0x{byte:02X}>" for byte in (0x71, 0xC4, 0x8D, 0xC3)],
        unk_token="B", fuse_unk=True, byte_fallback=True),
    "clip-gaps": lambda: without_bytes(clip(), GAPS),
    "lowercase": lambda: byte_level(
        use_regex=True, normalizer=N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase()]), more=NORMALIZED
    ),
    "clip": clip,
    "punctuation": lambda: byte_level([pre_tokenizers.Punctuation()], use_regex=True),
    # BPE over characters.
    "llama2": lambda: char_bpe(PREPEND, splits=False),
    "llama2-added": lambda: char_bpe(PREPEND, added=[*PLAIN, *NORMALIZED]),
    "gemma": lambda: char_bpe(N.Replace(" ", META), Split(" ", "merged_with_previous"), splits=False, added=PLAIN[:3]),
    "chatglm": chatglm,
    "mistral": lambda: char_bpe(None, Metaspace(prepend_scheme="first", split=False), splits=False),
    "metaspace-always": lambda: char_bpe(None, Metaspace(), added=[*PLAIN, *NEIGHBORS]),
    "bigbird": bigbird,
    "bigbird-unfused": lambda: bigbird(fuse_unk=False),
    "bigbird-no-unknown": lambda: bigbird(unk_token=None, fuse_unk=False),
    "bigbird-ignore-merges": lambda: bigbird(ignore_merges=True, added=PLAIN),
    "nllb-bpe": lambda: bigbird(in_order(trained_charsmap(), collapse(" ")), added=[*LANGUAGES, *MASK]),
    "openai-gpt": openai_gpt,
    "metaspace-never": lambda: char_bpe(None, Metaspace(prepend_scheme="never"), added=PLAIN),
    # WordPiece.
    "bert-uncased": lambda: wordpiece(N.BertNormalizer()),
    "bert-cased": lambda: wordpiece(N.BertNormalizer(lowercase=False), added=PLAIN),
    "bert-accents": lambda: wordpiece(
        N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False), added=NEIGHBORS
    ),
    "bert-other": lambda: wordpiece(
        N.Sequence([N.NFKC(), N.Lowercase(), N.Strip()]), pre_tokenizers.Whitespace(), added=NORMALIZED
    ),
    # Unigram.
    "unigram": unigram,
    "unigram-tied": lambda: unigram(score=tied),
    "unigram-by-length": lambda: unigram(score=by_length, added=PLAIN),
    "t5": lambda: unigram(in_order(nmt_nfkc(), replace({"Regex": " {2,}"}, " ")), added=PLAIN),
    "xlm-r": lambda: unigram(trained_charsmap(), Sequence(XLM_R), added=MASK),
    "xlm-r-neighbors": lambda: unigram(nmt_nfkc(), Sequence(XLM_R), added=NEIGHBORS),
    "camembert": lambda: unigram(trained_charsmap(), Sequence(XLM_R), added=MASK),
    "pegasus": lambda: unigram(trained_charsmap(), Sequence(XLM_R), added=PLAIN),
    "nllb": lambda: unigram(in_order(trained_charsmap(), collapse(" ")), added=MASK, score=tied),
    "mbart": lambda: unigram(trained_charsmap(), Sequence(XLM_R), added=[*LANGUAGES, *MASK]),
    "bge-m3": lambda: unigram(in_order(trained_charsmap(), strip(False, True), collapse(META)), added=MASK),
    "deberta-v3": lambda: unigram(
        in_order(strip(True, True), trained_charsmap(), collapse(" ")), Sequence([Metaspace()])
    ),
    "deberta-punctuation": lambda: unigram(
        in_order({"type": "Lowercase"}, strip(True, True), trained_charsmap(), collapse(" ")),
        Sequence([pre_tokenizers.Punctuation("isolated"), Metaspace()])),
    "digits-punctuation-never": lambda: unigram(
        nmt_nfkc(), Sequence([Digits(individual_digits=True), pre_tokenizers.Punctuation("contiguous"), Metaspace(prepend_scheme="never")]),
        added=PLAIN),
    "xlnet": lambda: unigram(
        in_order(*QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, trained_charsmap(), collapse(" ")), Sequence(XLM_R), added=MASK),
    "albert-lowercase": lambda: unigram(
        in_order(*QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, trained_charsmap(), collapse(" ")), added=MASK),
    "t5-first": lambda: unigram(
        in_order(trained_charsmap(), strip(False, True), collapse(META)), Metaspace(prepend_scheme="first"), added=PLAIN),
    "unigram-never": lambda: unigram(trained_charsmap(), Metaspace(prepend_scheme="never"), added=PLAIN),
    "albert": lambda: unigram(
        in_order(replace({"String": "``"}, '"'), replace({"String": "''"}, '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                 {"type": "Lowercase"}, nmt_nfkc(), replace({"Regex": " {2,}"}, " ")), added=NORMALIZED),
    "unigram-bytes": lambda: unigram({"type": "NFKC"}, byte_fallback=True),
    "unigram-sentence": lambda: unigram(META_FILE, Metaspace(split=False), score=tied),
    "unigram-nmt": lambda: unigram(
        in_order({"type": "Nmt"}, {"type": "NFC"}, {"type": "Strip", "strip_left": True, "strip_right": True})
    ),
    # WordLevel.
    "words-lowercase": lambda: word_level(
        pre_tokenizers.Whitespace(), N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()])
    ),
    "words": lambda: word_level(pre_tokenizers.WhitespaceSplit()),
    "words-punctuation": lambda: word_level(
        Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), Digits(individual_digits=True)]),
        N.Lowercase(), NORMALIZED
    ),
}

# Families without a fast engine, which the reference encodes.
WITHOUT_ENGINE = {"bert-accents", "unigram-sentence", "xlm-r-neighbors"}
