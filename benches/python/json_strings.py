"""Compares the CPU time of converting jsonl when dsconvert reads the texts itself and when serde_json reads them.

    python benches/python/json_strings.py BINARY CORPUS.jsonl [--pairs 15] [--core 1] -- --tokenizer gpt2.json --threads 1

A second corpus is the same, but writes the name "text" with an escape: `src/source/json_line` leaves such lines to
serde_json. The same documents become the same ids, and the runs alternate as in `versions.py`.
"""

import argparse
import tempfile

from versions import compare, seconds

NAME, ESCAPED = b'"text": "', b'"\\u0074ext": "'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("corpus")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("arguments", nargs="+")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as escaped:
        with open(args.corpus, "rb") as lines:
            for line in lines:
                if NAME not in line:
                    raise SystemExit(f"{args.corpus} has a line without {NAME.decode()}")
                escaped.write(line.replace(NAME, ESCAPED, 1))
        escaped.flush()
        general, quick = (
            lambda corpus=corpus: seconds(args.binary, ["text", corpus, *args.arguments], args.core)
            for corpus in (escaped.name, args.corpus)
        )
        print(" ".join(args.arguments))
        compare("serde_json", general, "dsconvert", quick, args.pairs)


if __name__ == "__main__":
    main()
