"""Compares gigatoken with the Python package tokenizers on one core: MB/s, and documents whose ids differ.

    python encode_gigatoken.py TOKENIZER.json CORPUS.jsonl [CORPUS.jsonl ...]

The counterpart of `cargo bench -p dsconvert-tokens --bench encode` with the same files. Texts are in the field `text`.
The first pass starts with an empty cache. `tokenizers` encodes every N-th document, about 1 MB in all, because it is
slow; the ids of those documents are compared. Pin both programs to the same core.
"""

import json
import os
import pathlib
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gigatoken  # noqa: E402
import tokenizers  # noqa: E402

ROUNDS = 3
REFERENCE_BYTES = 1 << 20


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(path, corpus):
    texts = [json.loads(line)["text"] for line in corpus.open(encoding="utf-8")]
    size = sum(len(text.encode()) for text in texts)
    step = max(1, -(-size // REFERENCE_BYTES))
    sample = texts[::step]
    sampled = sum(len(text.encode()) for text in sample)

    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.no_truncation()
    reference.no_padding()
    reference.encode_special_tokens = True
    slow, first, second = [], [], []
    # Alternates, so that other load affects all of them.
    for _ in range(ROUNDS):
        fast = gigatoken.Tokenizer(str(path))
        first.append(size / seconds(lambda: fast.encode_batch(texts, parallel=False)))
        second.append(size / seconds(lambda: fast.encode_batch(texts, parallel=False)))
        slow.append(sampled / seconds(lambda: [reference.encode(text, add_special_tokens=False) for text in sample]))
    expected = [reference.encode(text, add_special_tokens=False).ids for text in sample]
    found = fast.encode_batch_list(sample, parallel=False)
    differ = sum(a != b for a, b in zip(expected, found, strict=True))
    slow, first, second = (statistics.median(speeds) / 1e6 for speeds in (slow, first, second))
    print(
        f"{path.stem:20} {corpus.stem:12} {size / 1e6:7.1f} {slow:9.2f} {first:7.1f} {second:7.1f} "
        f"{first / slow:6.1f} {differ:7}"
    )


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(f"{'tokenizer':20} {'text':12} {'MB':>7} {'reference':>9} {'first':>7} {'second':>7} {'ratio':>6} {'differ':>7}")
    for corpus in sys.argv[2:]:
        measure(pathlib.Path(sys.argv[1]), pathlib.Path(corpus))


if __name__ == "__main__":
    main()
