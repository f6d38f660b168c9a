"""Measures reading from object storage: the share of the line used, the bytes downloaded, and the speed of the cache.

Starts the server of tests/objects on the files of a dataset, with limited bandwidth and a latency per request, and
reads epochs of undecoded records through a `Loader`:

    cargo build --release --bin objects --package dsconvert-test-objects
    python benches/python/remote_reading.py DATASET --server target/release/objects --mb-per-s 60 --latency-ms 20

Prints one line of JSON for each measurement:

* `first epoch`: bytes of records per second as a share of the limit, and bytes downloaded as a multiple of the
  dataset's;
* `warm`: records per second of later epochs from the cache, as a share of those of the local dataset, measured in turn,
  with the range of the pairs.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import dsconvert


def epoch(loader):
    """Returns the seconds and records of one epoch."""
    started = time.perf_counter()
    records = sum(len(batch["key"]) for batch in loader)
    return time.perf_counter() - started, records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--mb-per-s", type=float, default=60)
    parser.add_argument("--latency-ms", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    rate = args.mb_per_s * 1e6
    command = [args.server, "--bytes-per-second", str(int(rate)), "--latency-ms", str(args.latency_ms), f"bucket={args.dataset}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        endpoint = server.stdout.readline().strip()
        options = {
            "endpoint_url": endpoint, "region": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test",
        }
        local = dsconvert.open(args.dataset, "train")
        shards = sum(file.stat().st_size for file in (args.dataset / "train").iterdir())
        loading = {"batch_size": args.batch_size, "num_threads": args.threads, "fields": ["key", "image"], "decode": False}
        with tempfile.TemporaryDirectory() as cache:
            started = time.perf_counter()
            remote = dsconvert.open("s3://bucket", "train", storage_options=options, cache_dir=cache)
            opened = time.perf_counter() - started
            loaders = [dsconvert.Loader(split, seed=1, **loading) for split in (local, remote)]
            seconds, records = epoch(loaders[1])
            with urllib.request.urlopen(f"{endpoint}/_counts") as answer:
                counts = json.load(answer)
            print(json.dumps({
                "measured": "first epoch", "records": records, "seconds to open": round(opened, 3), "seconds": round(seconds, 2),
                "share of the line": round(shards / seconds / rate, 3),
                "downloaded": round(counts["sent"] / shards, 3), "requests": counts["requests"],
            }), flush=True)
            pairs = []
            epoch(loaders[0])
            for _ in range(args.pairs):
                here, there = (epoch(loader)[0] for loader in loaders)
                pairs.append(here / there)
            print(json.dumps({
                "measured": "warm", "share of local": round(statistics.median(pairs), 3),
                "range": [round(min(pairs), 3), round(max(pairs), 3)],
            }), flush=True)
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    main()
