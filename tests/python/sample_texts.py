"""Documents to test tokenizers with: natural ones, and adversarial ones from a seeded generator."""

import random
import re
import sysconfig
from pathlib import Path

import expected
import tier

# Source files of Python's standard library: natural code and prose that exists wherever these tests run.
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
LIBRARY_FILES = 168
LIBRARY_BYTES = 2_000

SPACES = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\t\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029",
    "\u0085", "\u000b", "\u000c", "\u001c", "\u1680", "\u180e", "\u202f", "\u205f", " \u00a0", "        ", "\u2581",
    "\u2581\u2581",
]
WORDS = [
    "the", "dog", " owner", "quick", "HTMLParser", "parserHTML", "camelCase", "SCREAMING_CASE", "x86_64", "iPhone", "ABc", "aBC",
    "don't", "it's", "I'LL", "o'clock", "'tis", "rock'n'roll", "we'Re", "'S", "'d", "'ve'm", "'ll", "''s", "'\u017f", "'\u212a",
    "don\u2019t", "\u2019s", "def f(self):", "return x;", "//", "/*", "*/", "#include", "->", "!=", "&&", "http://a.b/c?d=e&f#g",
    "caf\u00e9", "cafe\u0301", "na\u00efve", "Stra\u00dfe", "STRASSE\u1e9e", "\u0130\u0131", "\ufb01\ufb02\ufb03\ufb05", "\u01c4\u01c5\u01c6",
    "\u00c5\u212b", "\u2126", "\u017ft\u017f", "\u0149", "\u00aa\u00ba", "\u02b0\u02b1", "\u1d2c",
]
SCRIPTS = [
    (0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5F4), (0x600, 0x6FF), (0x700, 0x74F),
    (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA75), (0xB80, 0xBFA), (0xE01, 0xE5B), (0xE81, 0xEDF), (0xF00, 0xFDA), (0x1000, 0x109F),
    (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137C), (0x13A0, 0x13FD), (0x1780, 0x17F9), (0x1800, 0x18AA), (0x1E00, 0x1FFE),
    (0x2C00, 0x2C5F), (0x3041, 0x30FF), (0x3105, 0x318E), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAD9), (0xFB00, 0xFDFF),
    (0xFE70, 0xFEFC), (0xFF01, 0xFFEE), (0x10400, 0x1044F), (0x10C80, 0x10CFF), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x20000, 0x2A6DF),
    (0x2F800, 0x2FA1D), (0x30000, 0x3134A),
]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x64B, 0x65F), (0x93A, 0x94F), (0xE31, 0xE4E), (0x1AB0, 0x1ACE), (0x20D0, 0x20F0),
         (0x3099, 0x309A), (0xFE00, 0xFE0F), (0xFE20, 0xFE2F), (0x1D165, 0x1D172), (0xE0100, 0xE01EF)]
DIGITS = ["0", "7", "42", "123", "1234", "1234567", "3.14", "1e-10", "0x1F", "1,234", "\u0664\u0665\u0666\u0667", "\u00bd", "\u2167", "\u00b2\u00b3",
          "\u0967\u0968\u0969\u096a", "\uff11\uff12\uff13\uff14", "\u2460", "\U0001d7d8", "\u3007", "1st2nd", "\u4e09", "\u0bf0"]
SYMBOLS = ["!", "?", ".", "...", ",", ";", ":", "-", "--", "\u2014", "_", "__", "=", "====", "/", "\\", "|", "~", "`", "``", "''", '"', "(", ")", "[", "]", "{",
           "}", "<", ">", "<<", "@", "#", "$", "%", "^", "&", "*", "+", "\u00ab", "\u00bb", "\u201c", "\u201d",
           "\u2026", "\u3002", "\u3001", "\uff0c", "\u30fb", "\u309c", "\u20ac",
           "\u2122", "\u00a9", "\u00b4", "\u00a8", "\u2190", "\u221e", "\u2500", "\u060c", "\u0964", "\u037e", "\u2044"]
EMOJI = ["\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\U0001f1eb\U0001f1f7", "\U0001f1ef", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e007f",
         "\U0001fae8", "\U0001f6dc", "\u200d", "\U0001f3fd", "\ufe0f"]
ODD = ["\x00", "\x01", "\x1b[0m", "\x7f", "\x9f", "\u00ad", "\u034f", "\u061c", "\u200b", "\u200c", "\u200e", "\u202e", "\u2060", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\ue000", "\U0010ffff",
       "\u0378", "\u0600", "\u0e33", "\u0eb3", "\u0f73", "\u0344", "\u0958", "\ufb1d", "\ufdfa", "\u3382", "\u337f",
       "\u1e9b\u0323", "\U0001d15e", "\U0001e4d0", "\U00010ec2", "\U00011f04",
       "\U00016d40", "\U0001cc00", "\U0002ebf0", "\U000323b0", "\u1c89", "\ua7cb", "\u0897", "\x80", "\u00c3\u00a9", "\u00ef\u00bb\u00bf", "\u00e2\u0082\u00ac"]

# At these, the split patterns of known models differ.
SPLITS = [
    "HTMLParser parserHTML don'tX it's'x I'LL o'clock 'tis x'll'd ABCdef aBcD Ab1cD 12345 a1b22",
    "};\n// comment\n/* x */\r\n/\n./a\n\n  if (x != y) {\n\treturn a->b;  // ok\n}\n   \n end  ",
    "Größe ΟΔΥΣΣΕΥΣ ǅuro ʰx Привет, Мир! ÉCOLE e\u0301t \u0301x ½ ٣٤٥٦ Ⅷ",
    "カタ・カナ゜\r\n漢字かな交じり文。12人、3回 中文文本，混在 한국어 문장입니다 नमस्ते दुनिया ภาษาไทย",
    "²6239½ _ 12345² 1234567 12345\u200d6 12345字 12345ª 1234\u0301",
    "nul\0 \u200d👩\u200d👩\u200d👧 🇫🇷 ❤\ufe0f\u00ad \u2028x\u0085y  \u3000z",
]
# The share of documents that one commit tests, unless all tests of the tokenizers run.
ONE_IN = 12


def documents(count, added, seed):
    """Natural documents, `count` adversarial ones and a long one; of most, a sample that rotates with the commit."""
    step = 1 if tier.is_exhaustive("tokenizers") else ONE_IN
    made = adversarial(count // step, added, seed + tier.SEED)
    return [*natural()[tier.SEED % step :: step], *made, *SPLITS, " ".join(SPLITS * 300)]


def natural():
    """The fixtures' documents and excerpts of the standard library, each from the beginning of a file."""
    texts = [text for _, text in expected.documents() if text]
    files = sorted(LIBRARY.glob("*.py"), key=lambda path: path.name)[:LIBRARY_FILES]
    texts += [path.read_text(encoding="utf-8", errors="ignore")[:LIBRARY_BYTES] for path in files]
    return [text for text in texts if text]


def prose(size):
    """At most `size` characters of natural text, to train vocabularies on: many scripts, prose and code."""
    texts = natural()
    share = size // len(texts)
    return [text[:share] for text in texts]


def adversarial(count, added, seed):
    """`count` documents of characters that tokenizers treat in special ways, and of the added tokens `added`."""
    rng = random.Random(seed)
    pick = rng.choice

    def chars(ranges, low, high):
        first, last = pick(ranges)
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(low, high)))

    def marked():
        return "".join(chars(SCRIPTS, 1, 1) + chars(MARKS, 0, 3) for _ in range(rng.randint(1, 3)))

    def any_char():
        code = rng.choice(
            [rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)]
        )
        return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"

    def token():
        text = pick(added)
        kind = rng.randrange(8)
        if kind == 0:
            return text[: rng.randint(1, len(text))]
        if kind == 1:
            return text[rng.randrange(len(text)) :]
        if kind == 2:
            return rng.choice([text.upper(), text.lower(), text.title()])
        if kind == 3:
            return text + text
        if kind == 4:
            return pick(SPACES) + text + pick(SPACES)
        if kind == 5:
            return pick(["a", "\u00e9", "_", "1", "\u0301"]) + text + pick(["a", "\u00e9", "_", "1", "\u0301"])
        return text

    kinds = [
        (14, lambda: pick(WORDS)), (12, lambda: pick(SPACES)), (8, lambda: " "), (8, lambda: chars(SCRIPTS, 1, 6)), (4, marked),
        (6, lambda: pick(DIGITS)), (8, lambda: pick(SYMBOLS)), (3, lambda: pick(EMOJI)), (3, lambda: pick(ODD)),
        (2, lambda: chars(MARKS, 1, 4)), (2, any_char), (6 if added else 0, token),
        (1, lambda: pick([*SPACES, *SYMBOLS, *DIGITS, *MARKS_ALONE, "a", "ab", "\u00e9", "\u8a9e", "\u044f", "xyz'"]) * rng.randint(2, 40)),
    ]
    weights = [weight for weight, _ in kinds]
    made = [make for _, make in kinds]
    texts = []
    for number in range(count):
        length = rng.randint(1, 10) if number % 100 else rng.randint(60, 200)
        texts.append("".join(make() for make in rng.choices(made, weights, k=length)) or "x")
    # Very long words, long runs, and documents long enough to be divided.
    for unit in ["a", "ab", "\u00e9", "\u8a9e", "1", "=", "e\u0301", "\u044f", "x'", "\U0001f44d\U0001f3fd", "\u00a0", "\n", " "]:
        texts.append(unit * 700)
        texts.append(f"x{unit * 130} {unit * 9}.")
    joined = " ".join(text for text in texts[:3000])
    texts.append(joined[:70_000])
    return texts


MARKS_ALONE = ["\u0301", "\u0327", "\u093c", "\u0e31", "\u20dd"]


def without(texts, strings):
    """The texts in which none of `strings` occurs."""
    if not strings:
        return texts
    pattern = re.compile("|".join(map(re.escape, strings)), re.IGNORECASE)
    return [text for text in texts if not pattern.search(text)]
