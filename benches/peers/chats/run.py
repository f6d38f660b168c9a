"""Compares `dsconvert text --messages-field` with `transformers` on one core, for each model folder.

    python run.py CHATS.jsonl MODEL… --dsconvert target/release/dsconvert [--peer-chats 1000] [--options "--final-stop none"]

`inputs.py` makes the chats and the model folders. A folder has a tokenizer.json, a tokenizer_config.json and a
chat_template.jinja. dsconvert converts all chats, with the loss masks, and writes a Parquet dataset. transformers renders
and tokenizes the first `--peer-chats` chats, which are already in memory, in one batch, without masks. Both are pinned to
one core and run alternately; figures are tokens per second of CPU time in the fastest of `--rounds` runs. *Command* is the
whole command, with its start, the tokenizer, compression and writing. *Stage* is the part of it that does the work of
transformers and computes the masks: parsing, rendering and tokenizing, by the times of its run report. The ids of the
chats of both are compared.
"""

import argparse
import json
import os
import resource
import statistics
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
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    peer = Path(__file__).with_name("transformers_chats.py")
    print("million tokens/s: command, stage, transformers (range); ratios: command, stage; rendering in transformers; equal ids")
    ratios = {"command": [], "stage": []}
    for model in filter(Path.is_dir, args.models):
        with tempfile.TemporaryDirectory() as folder:
            few, out, report, peer_ids = (Path(folder, name) for name in ("few.jsonl", "out", "report.json", "ids.json"))
            with args.chats.open() as lines:
                few.write_text("".join(line for line, _ in zip(lines, range(args.peer_chats))))
            command = [args.dsconvert, "text", args.chats, "--messages-field", "messages", "--tokenizer", model, "--out", out, "--format", "parquet"]
            command += ["--threads", "1", "--quiet", "--max-rejects", "100%", "--overwrite", "--report", report, *args.options.split()]
            seconds, stage_seconds, found = [], [], []
            for _ in range(args.rounds):
                start = cpu_seconds()
                subprocess.run(command, check=True, env=environment)
                seconds.append(cpu_seconds() - start)
                times = json.loads(report.read_text())
                stage_seconds.append(seconds[-1] * times["thread_seconds"]["transform"] / times["seconds"]["total"])
                done = subprocess.run([sys.executable, peer, few, model, "--ids", peer_ids], check=True, env=environment, capture_output=True, text=True)
                found.append(json.loads(done.stdout))
            ids = pyarrow.parquet.read_table(out / "train", columns=["input_ids"])["input_ids"].to_pylist()
            tokens = sum(map(len, ids))
            theirs = sorted(run["tokens"] / run["total_s"] / 1e6 for run in found)
            ours = {"command": tokens / min(seconds) / 1e6, "stage": tokens / min(stage_seconds) / 1e6}
            for name, rate in ours.items():
                ratios[name].append(rate / theirs[-1])
            expected = json.loads(peer_ids.read_text())
            equal = sum(map(list.__eq__, ids, expected))
        rendering = min(run["rendering_s"] / run["total_s"] for run in found)
        print(
            f"{model.name}: {ours['command']:.2f}, {ours['stage']:.2f}, {theirs[-1]:.3f} (from {theirs[0]:.3f}); "
            f"{ratios['command'][-1]:.1f}, {ratios['stage'][-1]:.1f}; {rendering:.0%}; {equal} of {len(expected)}",
            flush=True,
        )
    for name, values in ratios.items():
        print(f"{name}: median ratio {statistics.median(values):.1f}, least {min(values):.1f}")


if __name__ == "__main__":
    main()
