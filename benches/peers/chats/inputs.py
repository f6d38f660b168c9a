"""Makes the inputs of `run.py`: chats of real text, and model folders with the templates of a checkout of TRL.

    python inputs.py TEXTS.jsonl CODE.jsonl TRL/trl/chat_templates TOKENIZER.json OUT [--chats 100000]

A chat has one to four questions and answers of sentences of TEXTS; a tenth of the answers has source code of CODE. Both
have a text per line, in the field `text`. No chat has a system message, which some templates refuse. A model folder has
the normalizer and the pre-tokenizer of a family of models, with the vocabulary of TOKENIZER (byte-level BPE) and the
markers of the template as special tokens; for families without a byte-level pre-tokenizer, a vocabulary of 32,000 tokens
is trained on the texts.
"""

import argparse
import json
import random
import re
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, trainers

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + r"?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CL100K = [split(rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}{{1,3}}|{REST}"), BYTES]
QWEN = [split(rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}|{REST}"), BYTES]
DEEPSEEK = [
    split(r"\p{N}{1,3}"),
    split(r"[一-龥぀-ゟ゠-ヿ]+"),
    split(
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    BYTES,
]
GPT2 = [{"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}]
NFC = {"type": "NFC"}
# Per template: the normalizer, the pre-tokenizer (None: SentencePiece, with a vocabulary of its own), and special tokens
# that the template gets as variables.
FAMILIES = {
    "qwen2_5": (NFC, QWEN, {"eos_token": "<|im_end|>"}),
    "qwen3": (NFC, QWEN, {"eos_token": "<|im_end|>"}),
    "llama3": (None, CL100K, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "deepseekv3": (None, DEEPSEEK, {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}),
    "glm4moe": (None, CL100K, {"eos_token": "<|endoftext|>"}),
    "nemotron_3_nano": (None, [split(O200K), BYTES], {"bos_token": "<s>", "eos_token": "<|im_end|>"}),
    "cohere": (NFC, GPT2, {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>"}),
    "lfm2": (None, CL100K, {"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>"}),
    "phi3": ("prepend", None, {"bos_token": "<s>", "eos_token": "<|endoftext|>"}),
    "gemma": ("replace", None, {"bos_token": "<bos>", "eos_token": "<eos>"}),
}
MARKER = r"<[|｜][^>\s]{1,40}[|｜]>|<(?:start|end)_of_turn>|<sop>|\[gMASK\]"


def texts_of(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.open(encoding="utf-8")]


def write_chats(file: Path, texts: list[str], sources: list[str], number: int) -> None:
    drawn = random.Random(0)
    sentences = [sentence.strip() for text in texts for sentence in re.split(r"(?<=[.!?])\s+", text) if len(sentence) > 20]
    # In messages, the string of a special token is text for dsconvert, and a token for transformers.
    sentences = [sentence for sentence in sentences if "<" not in sentence]
    source_lines = [source.splitlines() for source in sources]
    with file.open("w", encoding="utf-8") as out:
        for _ in range(number):
            messages = []
            for _ in range(drawn.randint(1, 4)):
                answer = " ".join(drawn.choices(sentences, k=drawn.randint(1, 8)))
                if drawn.random() < 0.1:
                    lines = drawn.choice(source_lines)
                    first = drawn.randrange(len(lines))
                    answer += "\n\n```python\n" + "\n".join(lines[first : first + drawn.randint(5, 40)]) + "\n```"
                messages.append({"role": "user", "content": " ".join(drawn.choices(sentences, k=drawn.randint(1, 2)))})
                messages.append({"role": "assistant", "content": answer})
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def trained(texts: list[str], normalizer: str) -> dict:
    """Returns a tokenizer like those of Llama 2 and Gemma: BPE of characters and, for the others, bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trainer = trainers.BpeTrainer(
        vocab_size=32_000, special_tokens=["<unk>", *[f"<0x{i:02X}>" for i in range(256)]], show_progress=False
    )
    words = (re.sub(" ", "▁", word) for text in texts for word in re.findall(r" ?\S+|\s+", text))
    tokenizer.train_from_iterator(words, trainer)
    made = json.loads(tokenizer.to_str())
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = [{"type": "Prepend", "prepend": "▁"}] if normalizer == "prepend" else []
    made["normalizer"] = {"type": "Sequence", "normalizers": [*prepend, replace]}
    made["added_tokens"] = [token for token in made["added_tokens"] if not token["content"].startswith("<0x")]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("code", type=Path)
    parser.add_argument("templates", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--chats", type=int, default=100_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts = texts_of(args.texts)
    write_chats(args.out / "chats.jsonl", texts, texts_of(args.code), args.chats)
    for name, (normalizer, splits, special) in FAMILIES.items():
        if splits is None:
            made = trained(texts, normalizer)
        else:
            made = json.loads(args.tokenizer.read_text())
            made["normalizer"] = normalizer
            made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
        made["post_processor"] = None
        template = (args.templates / f"{name}.jinja").read_text()
        tokenizer = Tokenizer.from_str(json.dumps(made))
        markers = sorted({*special.values(), *re.findall(MARKER, template)})
        tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
        folder = args.out / name
        folder.mkdir(exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(template)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
