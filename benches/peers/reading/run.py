"""Reads the same records with dsconvert and its peers, one after the other, and prints one table."""

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import dsconvert

from common import clock, count_images, count_tokens

PEERS = [
    "dsconvert_loader", "folder_dataloader", "torchvision_crops", "huggingface", "mosaicml", "litdata_reader", "ffcv_loader"
]


class Images:
    """Pairs of JPEG and label."""

    def __init__(self, originals, path):
        self.originals, self.path = originals, path

    def __iter__(self):
        return ((record["image"], record["label"]) for record in dsconvert.open(self.path))


class Tokens:
    """Arrays of token ids."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        return (record["input_ids"] for record in dsconvert.open(self.path))


def convert(*args):
    subprocess.run([sys.executable, "-m", "dsconvert", *map(str, args)], check=True, stderr=subprocess.DEVNULL)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=["images", "crops", "tokens"])
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--tokenizer", default="bytes")
    arguments.add_argument("--restart-interval", help="MCUs between restart markers of images")
    arguments.add_argument("--seconds", type=float, default=10, help="time for each measurement")
    arguments.add_argument("--workers", type=int, default=2, help="worker processes of peers")
    arguments.add_argument("--peers", default=",".join(PEERS))
    options = arguments.parse_args()

    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        if options.what in ("images", "crops"):
            size, read = {"images": ("shorter:256", "image_epochs"), "crops": ("longer:512", "crop_epochs")}[options.what]
            restarts = ["--restart-interval", options.restart_interval] if options.restart_interval else []
            convert(
                "images", options.source, "--out", work / "data", "--format", "arrow",
                "--resize", size, "--encode", "jpeg:90", "--max-rejects", "100%", *restarts,
            )
            records, count, write = Images(options.source, work / "data"), count_images, "images"
        else:
            convert("text", options.source, "--out", work / "data", "--format", "arrow", "--tokenizer", options.tokenizer)
            records, count, write, read = Tokens(work / "data"), count_tokens, "tokens", "token_epochs"
        print(f"{len(dsconvert.open(work / 'data')):,} records, {options.seconds:g} s each", file=sys.stderr)
        print(f"| {'peer':18} | workers | first epoch, records/s | later epochs, records/s | elements of an epoch |")
        print("|---|---|---|---|---|")
        for name in options.peers.split(","):
            try:
                peer = importlib.import_module(name)
                if not (hasattr(peer, write) and hasattr(peer, read)):
                    continue
                out = work / name
                out.mkdir()
                path = getattr(peer, write)(records, out)
            except Exception as error:  # the other peers are measured anyway
                print(f"{name} is skipped: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            for workers in [0] if hasattr(peer, "IN_PROCESS_ONLY") else [0, options.workers]:
                try:
                    first, later, elements = clock(getattr(peer, read)(path, workers), count, options.seconds)
                except Exception as error:
                    print(f"{name}, {workers} workers: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                print(f"| {name:18} | {workers:7} | {first:22,.0f} | {later:23,.0f} | {elements or '':>20} |", flush=True)


if __name__ == "__main__":
    main()
