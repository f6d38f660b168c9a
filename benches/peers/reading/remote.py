"""Reads the same photographs from object storage with dsconvert and its peers, in turn, and prints one table.

    cargo build --release --bin objects --package dsconvert-test-objects
    python benches/peers/reading/remote.py FOLDER --server target/release/objects

FOLDER is a folder of photographs, which are repeated up to a size of --megabytes. dsconvert writes them unchanged into
an arrow dataset, and each peer writes the same bytes into its own files. For each measurement, the server of
tests/objects serves these files with limited bandwidth and a latency per request. The peer reads two epochs of
undecoded images in random order, in batches of 64, with an empty cache folder. *Share of the line* is the image bytes
per second of the first epoch, which includes opening the dataset, divided by the bandwidth.
"""

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import dsconvert

PEERS = {"dsconvert": "dsconvert_loader", "MosaicML StreamingDataset": "mosaicml", "LitData": "litdata_reader"}
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class Images:
    """Pairs of JPEG and label."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        return ((record["image"], 0) for record in dsconvert.open(self.path))


def convert(folder, work, megabytes):
    """Converts the images of a folder, repeated as often as needed."""
    originals = sorted(path for path in folder.rglob("*") if path.is_file())
    size, number = 0, 0
    while size < megabytes * 1e6:
        original = originals[number % len(originals)]
        link = work / f"images/{number // len(originals):04}/{original.parent.name}-{original.name}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(original.resolve())
        size, number = size + original.stat().st_size, number + 1
    options = ["--follow-symlinks", "--layout", "flat", "--format", "arrow", "--max-rejects", "100%", "--quiet"]
    out = work / "dsconvert"
    subprocess.run([sys.executable, "-m", "dsconvert", "images", work / "images", "--out", out, *options], check=True)
    return Images(out)


def epoch(batches):
    """Returns the seconds, images and bytes of an epoch."""
    started, images, size = time.perf_counter(), 0, 0
    for batch in batches:
        images, size = images + len(batch), size + sum(map(len, batch))
    return time.perf_counter() - started, images, size


def measure(peer, path, workers, options):
    rate = options.mb_per_s * 1e6
    limits = ["--bytes-per-second", str(int(rate)), "--latency-ms", str(options.latency_ms)]
    server = subprocess.Popen([options.server, *limits, f"bucket={path}"], stdout=subprocess.PIPE, text=True)
    cache = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        endpoint = server.stdout.readline().strip()
        started = time.perf_counter()
        batches = peer.remote_epochs("s3://bucket", endpoint, cache, workers)
        opened = time.perf_counter() - started
        seconds, images, size = epoch(batches())
        with urllib.request.urlopen(f"{endpoint}/_counts") as answer:
            counts = json.load(answer)
        later, again, _ = epoch(batches())
        assert images == again, "both epochs have all images"
        stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return {
            "images": images, "share": size / (opened + seconds) / rate, "downloaded": counts["sent"] / stored,
            "requests": counts["requests"], "later": again / later,
        }
    finally:
        server.kill()
        server.communicate()
        shutil.rmtree(cache)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--server", type=lambda path: Path(path).resolve(strict=True), required=True)
    arguments.add_argument("--megabytes", type=float, default=600)
    arguments.add_argument("--mb-per-s", type=float, default=60)
    arguments.add_argument("--latency-ms", type=int, default=20)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--workers", type=int, default=2, help="worker processes of peers")
    arguments.add_argument("--dir", type=Path, help="folder for temporary files")
    options = arguments.parse_args()
    os.environ.update(ENVIRONMENT)

    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        work = Path(work)
        images = convert(options.folder, work, options.megabytes)
        paths, results = {}, {}
        for name, module in PEERS.items():
            try:
                peer = importlib.import_module(module)
                path = work / name
                path.mkdir(exist_ok=True)
                paths[name] = peer, peer.images(images, path)
            except Exception as error:  # the other peers are measured anyway
                print(f"{name} is skipped: {type(error).__name__}: {error}", file=sys.stderr)
        for number in range(options.rounds):
            for name, (peer, path) in paths.items():
                for workers in [0] if hasattr(peer, "IN_PROCESS_ONLY") else [0, options.workers]:
                    found = measure(peer, path, workers, options)
                    results.setdefault((name, workers), []).append(found)
                    print(f"round {number + 1}: {name}, {workers} workers: {found}", file=sys.stderr, flush=True)
    print(f"| {'peer':25} | workers | share of the line, range | downloaded | requests | second epoch, images/s |")
    print("|---|---|---|---|---|---|")
    for (name, workers), found in results.items():
        of = {key: [one[key] for one in found] for key in found[0]}
        median = {key: statistics.median(values) for key, values in of.items()}
        print(
            f"| {name:25} | {workers:7} | {median['share']:.2f}, {min(of['share']):.2f} to {max(of['share']):.2f} | "
            f"{median['downloaded']:.2f} | {median['requests']:,.0f} | {median['later']:,.0f} |"
        )


if __name__ == "__main__":
    main()
