"""Compares `dsconvert text --messages-field` with `transformers` on one core, for each model folder.

    python run.py CHATS.jsonl MODEL… --dsconvert target/release/dsconvert [--peer-chats 1000] [--options "--final-stop none"]

`inputs.py` makes the chats and the model folders. A folder has a tokenizer.json, a tokenizer_config.json and a
chat_template.jinja. dsconvert converts all chats, and its time includes its start, loading the tokenizer and writing a
Parquet dataset. transformers renders and tokenizes the first `--peer-chats` chats, which are already in memory, and its
time is that of `apply_chat_template` alone. Both are pinned to one core. The table has tokens per second of CPU time, so
that other programs on the machine matter little, and compares the ids of these chats.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chats", type=Path)
    parser.add_argument("models", nargs="+", type=Path, help="folders; files are left out")
    parser.add_argument("--dsconvert", required=True)
    parser.add_argument("--peer-chats", type=int, default=1000)
    parser.add_argument("--options", default="")
    parser.add_argument("--core", type=int, default=0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    peer = Path(__file__).with_name("transformers_chats.py")
    print("model, tokens/s dsconvert, tokens/s transformers, ratio, rendering/all of transformers, equal ids")
    ratios = []
    for model in filter(Path.is_dir, args.models):
        with tempfile.TemporaryDirectory() as folder:
            few = Path(folder, "few.jsonl")
            with args.chats.open() as lines:
                few.write_text("".join(line for line, _ in zip(lines, range(args.peer_chats))))
            out = Path(folder, "out")
            command = [args.dsconvert, "text", args.chats, "--messages-field", "messages", "--tokenizer", model, "--out", out]
            command += ["--threads", "1", "--quiet", "--max-rejects", "100%", *args.options.split()]
            start = cpu_seconds()
            subprocess.run(command, check=True, env=environment)
            seconds = cpu_seconds() - start
            table = pyarrow.parquet.read_table(out / "train", columns=["input_ids"])
            ids = table["input_ids"].to_pylist()
            ours = sum(map(len, ids)) / seconds
            done = subprocess.run([sys.executable, peer, few, model, "--ids", Path(folder, "ids.json")], check=True, env=environment, capture_output=True, text=True)
            found = json.loads(done.stdout)
            theirs = found["tokens"] / found["total_s"]
            peer_ids = json.loads(Path(folder, "ids.json").read_text())
            equal = sum(map(list.__eq__, ids, peer_ids))
        ratios.append(ours / theirs)
        print(f"{model.name}, {ours:,.0f}, {theirs:,.0f}, {ratios[-1]:.1f}, {found['rendering_s'] / found['total_s']:.0%}, {equal} of {len(peer_ids)}", flush=True)
    print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.1f}, least {min(ratios):.1f}")


if __name__ == "__main__":
    main()
