"""How fast `dsconvert.convert` writes: run it with the Python package installed, on an otherwise idle machine.

    python benches/records.py FOLDER [RUNS]

Prints medians of RUNS runs (5): records of 512 KiB in float16 from one process, against hashing and writing the same bytes
to one file, and against `MDSWriter` of mosaicml-streaming if that is installed; and a function of 20 ms of pure CPU with two
workers against one.
"""

import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np

import dsconvert

RECORDS = 1_000
SHAPE = (16, 128, 128)
CPU_ITEMS = 1_000
CPU_SECONDS = 0.02


class Latents:
    """Returns one of a few arrays, so that only writing takes time."""

    def start(self):
        random = np.random.default_rng(0)
        self._arrays = [random.random(SHAPE, np.float32).astype(np.float16) for _ in range(16)]

    def __call__(self, item):
        return {"latent": self._arrays[item % 16]}


def busy(item):
    end = time.process_time() + CPU_SECONDS
    total = 0
    while time.process_time() < end:
        total += 1
    return {"n": item}


def raw_file(out):
    """Writes, hashes and syncs the same bytes."""
    latents, digest = Latents(), hashlib.sha256()
    latents.start()
    with open(out, "wb") as file:
        for item in range(RECORDS):
            content = memoryview(latents(item)["latent"]).cast("B")
            digest.update(content)
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def converted(out):
    schema = {"latent": dsconvert.array("float16", SHAPE)}
    dsconvert.convert(Latents(), range(RECORDS), out, schema, version="1")


def mds(out):
    from streaming import MDSWriter

    latents = Latents()
    latents.start()
    columns = {"key": "str", "latent": f"ndarray:float16:{','.join(map(str, SHAPE))}"}
    with MDSWriter(out=out, columns=columns, hashes=["sha256"]) as writer:
        for item in range(RECORDS):
            writer.write({"key": str(item), **latents(item)})


def with_workers(count):
    def run(out):
        options = {"version": "1", "unit_items": 10, "workers": count}
        dsconvert.convert(busy, range(CPU_ITEMS), out, {"n": "uint32"}, **options)

    return run


def main():
    folder, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    os.makedirs(folder, exist_ok=True)
    cases = {"raw file": raw_file, "convert": converted, "one worker": with_workers(1), "two workers": with_workers(2)}
    try:
        import streaming  # noqa: F401

        cases["MDSWriter"] = mds
    except ImportError:
        print("mosaicml-streaming is not installed")
    seconds = {name: [] for name in cases}
    # One run of each in turn, so that all meet the same state of the machine.
    for _ in range(runs):
        for name, run in cases.items():
            out = os.path.join(tempfile.mkdtemp(dir=folder), "out")
            started = time.monotonic()
            run(out)
            seconds[name].append(time.monotonic() - started)
            shutil.rmtree(os.path.dirname(out))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    size = RECORDS * np.prod(SHAPE) * 2
    for name, median in medians.items():
        rate = f", {size / median / 2**30:.2f} GiB/s" if "worker" not in name else ""
        print(f"{name}: {median:.3f} s{rate}")
    print(f"convert, as a share of the raw file: {medians['raw file'] / medians['convert']:.2f}")
    if "MDSWriter" in medians:
        print(f"convert, as a multiple of MDSWriter: {medians['MDSWriter'] / medians['convert']:.2f}")
    print(f"two workers, as a multiple of one: {medians['one worker'] / medians['two workers']:.2f}")


if __name__ == "__main__":
    main()
