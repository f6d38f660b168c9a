"""Compares the four formats on one corpus: bytes on disk, and the speed of the loader. Prints one table.

    cargo build --release --bin objects --package dsconvert-test-objects
    python benches/python/formats.py CORPUS.jsonl --tokenizer tokenizer.json --copies 4 --server target/release/objects

Each measurement reads one epoch at least, and lasts `--seconds` at least. Measurements of the formats alternate, and the
median of `--rounds` rounds is printed. The first round, which fills the cache of the file system and that of decoded rows,
does not count.

| column | loader |
|---|---|
| records/s | `batch_size=32`, shuffled |
| buckets | `max_tokens=16384, oversize="alone"`, batches of similar length, in millions of tokens per second |
| packed | `batch_size=8, seq_len=1024`, packed at read time, in millions of tokens per second |
| first epoch, object storage | as records/s, with nothing cached, from the server of tests/objects with a limited line |
| later epochs, object storage | the same from the cache in memory |

With `--datasets`, the same Parquet files are also read by `datasets` and a `DataLoader` of torch, in batches of 32.
Needs the release build of the package.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dsconvert

FORMATS = ["parquet", "arrow", "msgpack", "protobuf"]
LOADERS = {
    "records": {"batch_size": 32},
    "buckets": {"max_tokens": 16384, "oversize": "alone"},
    "packed": {"batch_size": 8, "seq_len": 1024},
}


def rate(loader, seconds):
    """Returns the epochs per second, over whole epochs of at least `seconds`."""
    epochs, start = 0, time.perf_counter()
    while epochs == 0 or time.perf_counter() - start < seconds:
        for _ in loader:
            pass
        epochs += 1
    return epochs / (time.perf_counter() - start)


class Remote:
    """A server of object storage with the datasets, and a limited line."""

    def __init__(self, program, folder, mb_per_s, latency_ms):
        limits = ["--bytes-per-second", str(int(mb_per_s * 1e6)), "--latency-ms", str(latency_ms)]
        self.process = subprocess.Popen([program, *limits, f"bucket={folder}"], stdout=subprocess.PIPE, text=True)
        credentials = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.options = {"endpoint_url": self.process.stdout.readline().strip(), "region": "us-east-1", **credentials}

    def epochs(self, fmt, threads, seconds):
        """Returns the epochs per second of a first epoch, and of later ones."""
        split = dsconvert.open(f"s3://bucket/{fmt}", "train", storage_options=self.options)
        loader = dsconvert.Loader(split, num_threads=threads, seed=1, **LOADERS["records"])
        return [rate(loader, 0), rate(loader, seconds)]

    def stop(self):
        self.process.kill()
        self.process.communicate()


def peer(folder, seconds):
    """Returns the records per second of `datasets` in a later epoch, in this process."""
    import datasets
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    def pad(rows):
        rows = [row["input_ids"] for row in rows]
        out = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for row, ids in zip(out, rows):
            row[: len(ids)] = ids
        return torch.from_numpy(out)

    files = sorted(map(str, (folder / "parquet/train").iterdir()))
    with tempfile.TemporaryDirectory() as cache:
        data = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache, columns=["input_ids"])
        loader = DataLoader(data.with_format("numpy"), 32, shuffle=True, collate_fn=pad)
        rates = []
        for _ in range(2):
            count, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds:
                count += sum(len(batch) for batch in loader)
            rates.append(count / (time.perf_counter() - start))
        return rates[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--copies", type=int, default=1, help="how many times the corpus is read, to make an epoch longer")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--server", type=Path, help="the program of tests/objects")
    parser.add_argument("--mb-per-s", type=float, default=60)
    parser.add_argument("--latency-ms", type=int, default=20)
    parser.add_argument("--datasets", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        sources = [work / f"{number}{options.corpus.suffix}" for number in range(options.copies)]
        for source in sources:
            shutil.copyfile(options.corpus, source)
        for fmt in FORMATS:
            convert = ["text", *sources, "--out", work / fmt, "--format", fmt, "--tokenizer", options.tokenizer, "--quiet"]
            subprocess.run([sys.executable, "-m", "dsconvert", *map(str, convert)], check=True)
        manifest = json.loads((work / "arrow/manifest.json").read_text())
        train = manifest["splits"]["train"]
        records, tokens = train["records"], train["length"]["total"] / 1e6
        print(f"{records:,} records of {tokens:.1f} million tokens\n")
        print("| format | MB on disk | threads | records/s | buckets | packed | first epoch, object storage | later epochs |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for threads in map(int, options.threads.split(",")):
            rates = {fmt: [] for fmt in FORMATS}
            loaders = {
                fmt: {
                    what: dsconvert.Loader(work / fmt, num_threads=threads, seed=1, **keywords)
                    for what, keywords in LOADERS.items()
                }
                for fmt in FORMATS
            }
            for number in range(options.rounds + 1):
                for fmt in FORMATS:
                    found = [rate(loader, options.seconds) for loader in loaders[fmt].values()]
                    if options.server:
                        remote = Remote(options.server, work, options.mb_per_s, options.latency_ms)
                        try:
                            found += remote.epochs(fmt, threads, options.seconds)
                        finally:
                            remote.stop()
                    if number:
                        rates[fmt].append(found)
            for fmt in FORMATS:
                megabytes = sum(file.stat().st_size for file in (work / fmt / "train").iterdir()) / 1e6
                shuffled, buckets, packed, *stored = map(statistics.median, zip(*rates[fmt]))
                cells = [f"{shuffled * records:,.0f}", f"{buckets * tokens:.1f}", f"{packed * tokens:.1f}"]
                cells += [f"{rate * records:,.0f}" for rate in stored] or ["", ""]
                print(f"| {fmt} | {megabytes:.1f} | {threads} | {' | '.join(cells)} |", flush=True)
        if options.datasets:
            print(f"\ndatasets, the same Parquet files: {peer(work, 3 * options.seconds):,.0f} records/s")


if __name__ == "__main__":
    main()
