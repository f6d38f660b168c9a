"""Compares how fast the loader delivers images from several datasets, in alternating epochs of one process.

    python benches/python/loading_pairs.py DATASET DATASET … [--crop random|center] [--threads 1] [--rounds 7]

The datasets hold the same images, stored in different ways, for example with and without `--restart-interval 4`. Only CPU
time of the process counts, and each round measures all datasets one after the other. For each dataset after the first, the
median of the ratios to the first is printed with their range. Needs the release build of the package.
"""

import argparse
import statistics
import time

import dsconvert

CROPS = {"random": {"random_resized_crop": 224, "hflip": True}, "center": {"center_crop": 224}}


def rate(dataset, crop, threads, seconds):
    """Returns the images per second of CPU time, over whole epochs of at least `seconds`."""
    loader = dsconvert.Loader(dataset, batch_size=64, num_threads=threads, seed=1, **CROPS[crop])
    images, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        images += sum(len(batch["image"]) for batch in loader)
    return images / (time.process_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--crop", choices=CROPS, default="random")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.2, help="CPU time per dataset and round")
    options = parser.parse_args()

    # The first round fills the cache of the file system, and does not count.
    rounds = [
        [rate(dataset, options.crop, options.threads, options.seconds) for dataset in options.datasets]
        for _ in range(options.rounds + 1)
    ][1:]
    rates = [statistics.median(column) for column in zip(*rounds)]
    for number, (dataset, images) in enumerate(zip(options.datasets, rates)):
        print(f"{dataset}: {images:,.0f} images per second of CPU time", end="")
        if number:
            ratios = sorted(each[number] / each[0] for each in rounds)
            print(f", {statistics.median(ratios):.2f} times the first ({ratios[0]:.2f} to {ratios[-1]:.2f})", end="")
        print()


if __name__ == "__main__":
    main()
