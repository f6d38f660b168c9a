"""Tokenizes a corpus with dsconvert and its peers, one after the other in one run.

    python run.py CORPUS.jsonl --tokenizer tokenizer.json [--cores 1 2] [--dsconvert PATH] [--peer-megabytes 24]

Every tool runs in a separate process, pinned to the given number of cores; the fastest round counts. Slow tools get
only the first megabytes of the corpus, because their speed does not depend on its size. A tool that is not installed is
reported and skipped. `gigatoken` keeps its ids in memory and writes nothing; all others write a dataset.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
# Name, required module, and whether the peer gets the whole corpus.
PEERS = [("gigatoken_ids", "gigatoken", True), ("datasets_map", "datasets", False), ("datatrove_tokens", "datatrove", False)]
FORMATS = ["parquet", "arrow", "msgpack", "protobuf"]


def seconds(command, cores, rounds, out):
    """Returns the seconds of the fastest round on `cores` cores. Each round writes to an empty folder."""
    everything = sorted(os.sched_getaffinity(0))
    best = float("inf")
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, everything[:cores]),
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": str(cores)},
        )
        best = min(best, time.perf_counter() - start)
    return best


def head(corpus, megabytes, folder):
    """Writes the first lines of the corpus, about `megabytes` megabytes, to a file."""
    path = folder / "head.jsonl"
    with open(corpus, "rb") as source, open(path, "wb") as target:
        while target.tell() < megabytes * 1e6 and (line := source.readline()):
            target.write(line)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dsconvert", default="dsconvert", help="path of the dsconvert command")
    parser.add_argument("--peer-megabytes", type=float, default=24, help="megabytes of the corpus that slow peers get")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        out = folder / "out"
        less = head(args.corpus, args.peer_megabytes, folder)
        rows = []
        for cores in args.cores:
            for fmt in FORMATS:
                command = [args.dsconvert, "text", args.corpus, "--tokenizer", args.tokenizer, "--out", out]
                command += ["--format", fmt, "--threads", str(cores), "--quiet", "--max-rejects", "100%"]
                rows.append((f"dsconvert, {fmt}", cores, args.corpus, seconds(command, cores, args.rounds, out)))
            for name, module, is_fast in PEERS:
                if importlib.util.find_spec(module) is None:
                    print(f"{name} is skipped: no module {module}", file=sys.stderr)
                    continue
                corpus = args.corpus if is_fast else less
                command = [sys.executable, HERE / f"{name}.py", corpus, args.tokenizer, out, str(cores)]
                rounds = args.rounds if is_fast else 1
                try:
                    rows.append((name, cores, corpus, seconds(command, cores, rounds, out)))
                except subprocess.CalledProcessError:  # it has printed the reason, such as an unsupported tokenizer
                    print(f"{name} is skipped: it failed", file=sys.stderr)
        print(f"{'':24}{'cores':>6}{'MB':>8}{'MB/s':>9}{'parquet is':>14}")
        for name, cores, corpus, took in rows:
            speed = corpus.stat().st_size / 1e6 / took
            ours = next(c.stat().st_size / 1e6 / t for n, k, c, t in rows if k == cores and n.endswith("parquet"))
            print(f"{name:24}{cores:>6}{corpus.stat().st_size / 1e6:>8.0f}{speed:>9.1f}{ours / speed:>12.1f} ×")


if __name__ == "__main__":
    main()
