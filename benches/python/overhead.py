"""Measures the overhead of Python per batch and per record, in microseconds.

    python benches/python/overhead.py DATASET      # of text, with the release build of the package

Batches are small and prepared in advance, so that only the hand-over is measured. Figures are medians of an epoch, and
the best of several epochs.
"""

import statistics
import sys
import time

import dsconvert

EPOCHS = 6
READS = 2000


def microseconds(run, times):
    """Returns the microseconds per run in the best of several rounds."""
    best = float("inf")
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for i in range(times):
            run(i)
        best = min(best, (time.perf_counter() - start) / times)
    return best * 1e6


def per_batch(path, **options):
    """Returns the microseconds to get a batch that is ready."""
    loader = dsconvert.Loader(path, batch_size=2, num_threads=2, prefetch=1000, last="drop", **options)
    medians = []
    for _ in range(EPOCHS):
        batches, times = iter(loader), []
        next(batches)
        time.sleep(0.5)  # lets the threads prepare the others
        for _ in range(min(900, len(loader) - 1)):
            start = time.perf_counter()
            next(batches)
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times))
    return min(medians) * 1e6


def main():
    path = sys.argv[1]
    split = dsconvert.open(path).default
    some = list(range(0, min(len(split), 320), 10))
    sampler = iter(dsconvert.BatchSampler(path, batch_size=32, last="wrap"))
    rows = {
        "batch of 1 array": per_batch(path, fields=["lengths"]),
        "batch of 4 arrays": per_batch(path),
        "batch of 1 tensor": per_batch(path, fields=["lengths"], as_torch=True),
        "batch of 4 tensors": per_batch(path, as_torch=True),
        "record by ordinal": microseconds(lambda i: split[i % len(split)], READS),
        f"record, {len(some)} at once": microseconds(lambda _: split[some], READS // 10) / len(some),
        "list of a batch sampler": microseconds(lambda _: next(sampler), min(len(split) // 32, READS) // EPOCHS),
    }
    for what, time_us in rows.items():
        print(f"{what:28} {time_us:8.1f} µs")


if __name__ == "__main__":
    main()
