"""How fast records are written and read from Python: run it with the package installed, on an otherwise idle machine.

    python benches/records.py FOLDER [RUNS] [write|open|crops|rows …]

Prints medians of RUNS runs (5), of all or the named measurements:

* write: records of 512 KiB in float16 from one process, by `convert` and by `Writer`, against hashing and writing the same bytes
  to one file, and against `MDSWriter` of mosaicml-streaming if that is installed; and a function of 20 ms of pure CPU with two
  workers against one.
* open: opening a dataset of a million records, with a companion against without.
* crops: an epoch of a loader of center crops, with the scores of a companion against without.
* rows: random rows of 64 KiB, one by one and in batches of a loader, against `pread` at the same places; from the disk (the page cache is
  dropped before), and from memory.

The script needs pyarrow and Pillow for `open` and `crops`.
"""

import gc
import hashlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import dsconvert

RECORDS = 1_000
SHAPE = (16, 128, 128)
CPU_ITEMS = 1_000
CPU_SECONDS = 0.02
OPENED_RECORDS = 1_000_000
IMAGES = 2_000
ROWS = 16_384
ROW_BYTES = 64 << 10
READ_ROWS = 4_096
ROWS_PER_BATCH = 64


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


def written(out):
    latents = Latents()
    latents.start()
    with dsconvert.Writer(out, {"latent": dsconvert.array("float16", SHAPE)}) as writer:
        for item in range(RECORDS):
            writer.write(latents(item))


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


def medians_of(cases, runs, before=lambda: None):
    """Runs all cases in turn, so that all meet the same state of the machine, and returns the median seconds of each. `before`
    runs before each case, and is not measured."""
    seconds = {name: [] for name in cases}
    for _ in range(runs):
        for name, run in cases.items():
            gc.collect()
            before()
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in seconds.items()}


def into(folder, write):
    """Returns a function that writes into a new directory and removes it."""

    def run():
        out = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "out"
        write(out)
        shutil.rmtree(out.parent)

    return run


def write(folder, runs):
    cases = {
        "raw file": raw_file, "convert": converted, "Writer": written,
        "one worker": with_workers(1), "two workers": with_workers(2),
    }
    try:
        import streaming  # noqa: F401

        cases["MDSWriter"] = lambda out: mds(str(out))
    except ImportError:
        print("mosaicml-streaming is not installed")
    medians = medians_of({name: into(folder, run) for name, run in cases.items()}, runs)
    size = RECORDS * np.prod(SHAPE) * 2
    for name, median in medians.items():
        rate = f", {size / median / 2**30:.2f} GiB/s" if "worker" not in name else ""
        print(f"{name}: {median:.3f} s{rate}")
    for name in ("convert", "Writer"):
        print(f"{name}, times as fast as the raw file: {medians['raw file'] / medians[name]:.2f}")
        if "MDSWriter" in medians:
            print(f"{name}, times as fast as MDSWriter: {medians['MDSWriter'] / medians[name]:.2f}")
    print(f"two workers, times as fast as one: {medians['one worker'] / medians['two workers']:.2f}")


def add_scores(base, keys, out):
    """Adds a score to each record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = out.with_suffix(".parquet")
    pq.write_table(pa.table({"key": keys, "score": np.arange(len(keys), dtype=np.float32)}), table)
    dsconvert.add_fields(base, table, out)


def opening(folder, runs):
    base, scores = folder / "numbers", folder / "number-scores"
    with dsconvert.Writer(base, {"n": "uint32"}) as writer:
        writer.write_batch({"n": np.arange(OPENED_RECORDS, dtype=np.uint32)})
    add_scores(base, [f"{n:09d}" for n in range(OPENED_RECORDS)], scores)
    cases = {
        "open": lambda: dsconvert.open(base, "train")[OPENED_RECORDS - 1],
        "open with a companion": lambda: dsconvert.open(base, "train", add=[scores])[OPENED_RECORDS - 1],
    }
    medians = medians_of(cases, runs)
    more = medians["open with a companion"] - medians["open"]
    print(f"open of {OPENED_RECORDS:,} records and one record: {medians['open'] * 1e3:.1f} ms, {more * 1e3:.1f} ms more with a companion")


def crops(folder, runs):
    from PIL import Image

    (folder / "images").mkdir()
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        small = Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8))
        small.resize((320, 256), Image.Resampling.BICUBIC).save(folder / f"images/{number:05}.jpg", quality=90)
    base, scores = folder / "photos", folder / "photo-scores"
    subprocess.run([sys.executable, "-m", "dsconvert", "images", folder / "images", "--out", base, "--quiet"], check=True)
    add_scores(base, [record["key"] for record in dsconvert.open(base, "train", fields=["key"])], scores)

    def epoch(**options):
        return lambda: sum(len(batch["image"]) for batch in dsconvert.Loader(base, batch_size=64, center_crop=224, **options))

    cases = {"crops": epoch(fields=["image"]), "crops and scores": epoch(add=[scores], fields=["image", "score"])}
    medians = medians_of(cases, runs)
    for name, median in medians.items():
        print(f"{name}: {IMAGES / median:,.0f} images/s")
    print(f"with a companion, times as fast as without: {medians['crops'] / medians['crops and scores']:.2f}")


def rows(folder, runs):
    out = folder / "rows"
    random = np.random.default_rng(0)
    with dsconvert.Writer(out, {"row": dsconvert.array("uint8", (ROW_BYTES,))}) as writer:
        for _ in range(ROWS):
            writer.write({"row": random.integers(0, 256, ROW_BYTES, np.uint8)})
    raw = folder / "raw"
    with raw.open("wb") as file:
        for record in dsconvert.open(out, "train"):
            file.write(record["row"])
        file.flush()
        os.fsync(file.fileno())
    order = random.permutation(ROWS)[:READ_ROWS].tolist()
    files = [raw, *(path for path in out.rglob("*") if path.is_file())]
    # Of memory that is already mapped.
    batch = np.ones((ROWS_PER_BATCH, ROW_BYTES), np.uint8)

    def by_pread():
        file = os.open(raw, os.O_RDONLY)
        for at, row in enumerate(order):
            os.preadv(file, [batch[at % ROWS_PER_BATCH]], row * ROW_BYTES)
        os.close(file)

    def by_index(**options):
        def run():
            split = dsconvert.open(out, "train", **options)
            for at, row in enumerate(order):
                # Copied like the bytes of pread.
                batch[at % ROWS_PER_BATCH] = split[row]["row"]

        return run

    def by_loader():
        steps = READ_ROWS // ROWS_PER_BATCH
        for step, found in enumerate(dsconvert.Loader(out, batch_size=ROWS_PER_BATCH, fields=["row"], seed=1)):
            assert found["row"].shape == batch.shape
            if step + 1 == steps:
                break

    cases = {
        "pread": by_pread, "records": by_index(), "records, no checksums": by_index(verify_checksums=False, fields=["row"]),
        "batches of a loader": by_loader,
    }

    def drop_cache():
        for path in files:
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)

    for where, before in (("disk", drop_cache), ("memory", lambda: None)):
        medians = medians_of(cases, runs, before)
        for name, median in medians.items():
            rate = READ_ROWS * ROW_BYTES / median / 2**30
            print(f"random rows from {where}, {name}: {rate:.2f} GiB/s, {medians['pread'] / median:.2f} times pread")


MEASUREMENTS = {"write": write, "open": opening, "crops": crops, "rows": rows}


def main():
    folder, arguments = sys.argv[1], sys.argv[2:]
    runs = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 5
    os.makedirs(folder, exist_ok=True)
    for name in arguments or MEASUREMENTS:
        work = pathlib.Path(tempfile.mkdtemp(dir=folder))
        MEASUREMENTS[name](work, runs)
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
