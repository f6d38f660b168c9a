"""Compares images stored as planes (`--encode yuv420`) with JPEGs of quality 90: conversion, and delivery by the loader.

    python benches/python/planes.py FOLDER --out DIR [--dsconvert dsconvert] [--threads 2] [--rounds 7]

Converts the images of FOLDER with a shorter side of 256 and a longer side of 512 pixels, then delivers center crops of the
first and random-resized crops of the second, half of them mirrored, in alternating epochs of one process. *copy* is a copy
of as many bytes as the planes of a crop by one thread, from memory that is not in the cache, to a reused batch. Images per
second of CPU time, which other programs affect less than elapsed time: medians and ranges. Needs the release build of the
command and of the package.
"""

import argparse
import os
import resource
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

import dsconvert

BATCH = 64
SIDE = 224
CROPS = {"shorter:256": {"center_crop": SIDE}, "longer:512": {"random_resized_crop": SIDE, "hflip": True}}
ENCODINGS = {"jpeg:90": "JPEG", "yuv420": "planes"}


def convert(command, folder, out, resize, encode, threads):
    """Converts `folder`, and returns the seconds of CPU time."""
    options = ["--resize", resize, "--encode", encode, "--format", "arrow", "--threads", str(threads)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([command, "images", folder, "--out", out, "--overwrite", "--quiet", *options], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def settle():
    """Waits until no thread of this process works: a loader reads ahead after its last epoch, too."""
    used = None
    while used is None or time.process_time() - used > 0.002:
        used = time.process_time()
        time.sleep(0.05)


def per_cpu_second(epoch, seconds):
    """Runs whole epochs for at least `seconds` of CPU time. What is read ahead at the end is part of the measurement, as
    what was read ahead before is part of its images."""
    settle()
    images, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        images += epoch()
    settle()
    return images / (time.process_time() - start)


def loaded(dataset, threads, options):
    loader = dsconvert.Loader(dataset, batch_size=BATCH, num_threads=threads, seed=1, **options)
    return lambda: sum(len(batch["image"]) for batch in loader)


def copied():
    # Larger than the caches of most processors.
    images = 4096
    source = np.ones((images, SIDE * SIDE * 3 // 2), np.uint8)
    batch = np.zeros((BATCH, source.shape[1]), np.uint8)

    def epoch():
        for start in range(0, images, BATCH):
            part = source[start : start + BATCH]
            batch[: len(part)] = part
        return images

    return epoch


def show(name, rates, first=None):
    rates = sorted(rates)
    line = f"  {name:24} {statistics.median(rates):>9,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
    print(line + (f", {statistics.median(rates) / first:.2f} times JPEG" if first else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--dsconvert", default="dsconvert")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.2, help="CPU time per measurement")
    options = parser.parse_args()

    for resize, crop in CROPS.items():
        paths = {encode: options.out / f"{encode}-{resize}".replace(":", "-") for encode in ENCODINGS}
        conversions = {encode: [] for encode in ENCODINGS}
        for _ in range(3):
            for encode, path in paths.items():
                conversions[encode].append(convert(options.dsconvert, options.folder, path, resize, encode, options.threads))
        images = len(dsconvert.open(paths["yuv420"], "train"))
        sizes = {encode: sum(file.stat().st_size for file in path.glob("train/*")) / images for encode, path in paths.items()}
        print(f"{images} images, {resize}, images per second of CPU time")
        print(f"  bytes per image: JPEG {sizes['jpeg:90']:,.0f}, planes {sizes['yuv420']:,.0f}")
        first = images / statistics.median(conversions["jpeg:90"])
        for encode, name in ENCODINGS.items():
            show(f"conversion to {name}", [images / seconds for seconds in conversions[encode]], first)
        runs = {
            "JPEG to RGB": loaded(paths["jpeg:90"], options.threads, crop),
            "planes to RGB": loaded(paths["yuv420"], options.threads, crop),
            "planes to RGB, chw": loaded(paths["yuv420"], options.threads, {**crop, "layout": "chw"}),
            "planes": loaded(paths["yuv420"], options.threads, {**crop, "color": "yuv"}),
            "copy": copied(),
        }
        for run in runs.values():
            run()
        rates = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                rates[name].append(per_cpu_second(run, options.seconds))
        for name, found in rates.items():
            show(name, found, statistics.median(rates["JPEG to RGB"]))


if __name__ == "__main__":
    main()
