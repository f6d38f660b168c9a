"""Compares how fast a loader reads a mixture of three datasets, and one dataset with the same records.

    python benches/python/mixture.py [--folder DIR] [--documents 200000] [--threads 2] [--pairs 11] [--images FOLDER]

Makes the datasets in DIR, if they are not there: documents with log-normal lengths as in a text corpus (median 250 tokens,
sigma 1.1), all in one dataset, and divided among three (70, 20 and 10%). With `--images`, the same for the images of a
folder. The mixture reads each dataset as often as the others (`unit="epochs"`), and all options are the same. Both are
loaded in turn, epoch by epoch, and the order of a pair alternates. Prints the tokens or images per second of time, the
ratio of the medians, and the range of the ratios. Needs the release build of the package and an idle machine.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from versions import in_turn

import dsconvert

SHARES = {"web": 0.7, "code": 0.2, "chats": 0.1}
TEXT = {
    "packed": {"seq_len": 2048, "batch_size": 8},
    "bucketed": {"max_tokens": 16_384},
}
PHOTOS = {"images": {"batch_size": 64, "random_resized_crop": 224, "hflip": 0.5}}
LONGEST = 8_192
# Least number of images; those of the folder are repeated.
IMAGES = 10_000


def divided(items):
    """Divides items by the shares."""
    start = 0
    for name, share in SHARES.items():
        end = len(items) if name == list(SHARES)[-1] else start + round(share * len(items))
        yield name, items[start:end]
        start = end


def make(folder, kind, inputs, *options):
    """Converts the inputs of each dataset, and all of them as one."""
    convert = [sys.executable, "-m", "dsconvert", kind, "--quiet", *options]
    for name, given in [*inputs.items(), ("whole", [one for all_of in inputs.values() for one in all_of])]:
        if not (folder / name / "manifest.json").exists():
            subprocess.run([*convert, *given, "--out", folder / name], check=True)


def make_texts(folder, documents):
    rng = random.Random(7)
    words = [f"w{rng.randrange(10**6)}" for _ in range(5_000)]
    lengths = [min(max(1, int(rng.lognormvariate(5.52, 1.1))), LONGEST) for _ in range(documents)]
    inputs = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, of_dataset in divided(lengths):
        path = folder / f"{name}.jsonl"
        with path.open("w") as file:
            for length in of_dataset:
                text = " ".join(rng.choices(words, k=length // 5 + 1))[:length]
                file.write(json.dumps({"text": text}) + "\n")
        inputs[name] = [path]
    make(folder, "text", inputs, "--tokenizer", "bytes")


def make_images(folder, source):
    files = sorted(path for path in Path(source).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    # A loader prepares the first batches of its next epoch while the other one is measured: epochs must be long.
    files *= -(-IMAGES // len(files))
    random.Random(7).shuffle(files)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {}
    for name, of_dataset in divided(files):
        links = folder / f"{name}-files"
        links.mkdir(exist_ok=True)
        for number, path in enumerate(of_dataset):
            link = links / f"{name}-{number:06}.jpg"
            if not link.exists():
                link.symlink_to(path.resolve())
        inputs[name] = [links]
    make(folder, "images", inputs, "--encode", "jpeg:90", "--resize", "shorter:256", "--follow-symlinks")


def amount(loader, batch):
    return loader.last.tokens if "input_ids" in batch else len(batch["image"])


def seconds_each(loader):
    """Loads an epoch, and returns the seconds per token or image."""
    delivered, start = 0, time.perf_counter()
    for batch in loader:
        delivered += amount(loader, batch)
    return (time.perf_counter() - start) / delivered


def compare(folder, case, options, args):
    datasets = {name: folder / name for name in SHARES}
    mixture = dsconvert.Mixture(dict.fromkeys(datasets, 1), datasets=datasets, unit="epochs", exhausted="all_exhausted")
    options = options | {"num_threads": args.threads, "seed": 1, "rank": 0, "world_size": 1}
    one, mixed = (dsconvert.Loader(source, **options) for source in (folder / "whole", mixture))
    # Ratios of the first to the second time: how fast the mixture is, in units of the dataset.
    (single, several), ratios = in_turn(lambda: seconds_each(one), lambda: seconds_each(mixed), args.pairs)
    what = "images" if case == "images" else "tokens"
    print(
        f"{case:9} one dataset {1 / single:14,.0f} {what}/s, mixture of three {1 / several:14,.0f} {what}/s: "
        f"{single / several:.3f} times as fast ({ratios[0]:.3f} to {ratios[-1]:.3f} in {args.pairs} pairs)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dsconvert-mixture")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--images", metavar="FOLDER", help="JPEG files")
    args = parser.parse_args()

    texts = args.folder / f"texts-{args.documents}"
    make_texts(texts, args.documents)
    for case, options in TEXT.items():
        compare(texts, case, options, args)
    if args.images:
        make_images(args.folder / "images", args.images)
        for case, options in PHOTOS.items():
            compare(args.folder / "images", case, options, args)


if __name__ == "__main__":
    main()
