"""Measures the cost of plans, parts and commits with many items and many units.

    python benches/python/scale_measure.py plan target/release/dsconvert 100000 1000000 10000000
    python benches/python/scale_measure.py merge target/release/dsconvert 10000 100000
    python benches/python/scale_measure.py slow target/release/dsconvert 2000
    python benches/python/scale_measure.py records target/release/dsconvert 1000000 10000000 100000000
    python benches/python/scale_measure.py threads target/release/dsconvert 1 2 8 32 64

`plan` makes hard links of up to 100,000 small images whose names, sizes and times are random, 1,000 per folder. It
measures `plan` of the folders, `status` and `run --units 0`, which converts one unit of the plan. `merge` makes units
of one image each and measures `run`, `status` before and after the units are converted, `merge`, and `--resume` of the
finished dataset. `slow` does the same, but delays file system calls by a millisecond with a preloaded library that it
compiles with `cc`. `records` converts documents of one byte in files of 10,000,000, and measures `merge` per record.
`threads` converts DSCONVERT_BENCH_IMAGES, a folder, and DSCONVERT_BENCH_CORPUS, JSON Lines, with the tokenizer
DSCONVERT_BENCH_TOKENIZER, in rounds of all numbers of threads (medians of DSCONVERT_BENCH_ROUNDS, 3); each variable that
is not set is left out. It counts calls of futex with `strace` in a run of its own, and prints the stages of the run
reports for the first number of threads.
Figures are CPU seconds (user and system) and peak resident memory of each process; elapsed time depends on the disk and
on other load.

DSCONVERT_BENCH_DIR is the folder for temporary files. With 10,000,000 files, `plan` needs 400 MB for the images, 700 MB
for the folders and 2 GB for the plan. With 100,000,000 documents, `records` needs 1.3 GB for the documents and 16 GB
for the dataset and its units.
"""

import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path

# ext4 allows 65,000 links to a file.
LINKS = 60_000
FOLDER = 1_000
UNIT_BYTES = 64 << 10
# Number of different images in a listing; the others are hard links to them.
ORIGINALS = 100_000
SIZES = 16 << 10
DAY_NS = 86_400 * 10**9
FILE_RECORDS = 10_000_000
SLOW_FILES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELAYED(name, parameters, arguments)            \
    int name parameters {                               \
        static int(*real) parameters;                   \
        if (!real) real = dlsym(RTLD_NEXT, #name);      \
        usleep(1000);                                   \
        return real arguments;                          \
    }
#define DELAYED_OPEN(name)                              \
    int name(const char *path, int flags, ...) {        \
        static int (*real)(const char *, int, ...);     \
        if (!real) real = dlsym(RTLD_NEXT, #name);      \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        int mode = va_arg(rest, int);                   \
        va_end(rest);                                   \
        usleep(1000);                                   \
        return real(path, flags, mode);                 \
    }

DELAYED(statx, (int at, const char *path, int flags, unsigned mask, struct statx *found), (at, path, flags, mask, found))
DELAYED(rename, (const char *from, const char *to), (from, to))
DELAYED(unlink, (const char *path), (path))
DELAYED(rmdir, (const char *path), (path))
DELAYED_OPEN(open)
DELAYED_OPEN(open64)
"""


def png(padding=0):
    """Returns a picture of one pixel, with a chunk of `padding` bytes that decoders skip."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\x80\x80\x80"))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"teSt", bytes(padding)) + pixels + chunk(b"IEND", b"")


def images(folder, count, padding=0):
    """Creates `count` hard-linked images, and returns a file that lists them."""
    listed = folder.parent / "list.txt"
    with listed.open("w") as names:
        for number in range(count):
            name = f"{number // FOLDER:06}/image-{number:09}.png"
            path = folder / name
            if number % FOLDER == 0:
                path.parent.mkdir(parents=True)
            if number % LINKS == 0:
                path.write_bytes(png(padding))
                first = path
            else:
                os.link(first, path)
            names.write(f"{name}\n")
    return listed


def varied_images(folder, count):
    """Creates `count` images with random names, sizes and times. Hard links to the same image are far apart in the
    listing."""
    rng = random.Random(1)
    content, originals = png(), []
    for number in range(count):
        path = folder / f"{number // FOLDER:06}/{number:09}-{rng.getrandbits(32):08x}.png"
        if number % FOLDER == 0:
            path.parent.mkdir(parents=True)
        if number < ORIGINALS:
            path.write_bytes(content)
            os.truncate(path, len(content) + rng.randrange(SIZES))
            os.utime(path, ns=(0, 1_700_000_000 * 10**9 + rng.randrange(DAY_NS)))
            originals.append(str(path))
        else:
            os.link(originals[number % ORIGINALS], path)


def slow_files(folder):
    """Compiles a library for LD_PRELOAD that delays calls as a network file system would."""
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SLOW_FILES)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def measured(*command, preload=None):
    """Runs a command, and returns its CPU seconds, peak MiB and elapsed seconds.

    The peak is at least that of this process, because the child starts as a copy of it. This process therefore keeps
    nothing large in memory.
    """
    started = time.monotonic()
    environment = os.environ | ({"LD_PRELOAD": str(preload)} if preload else {})
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, f"{command}: exit status {os.waitstatus_to_exitcode(status)}"
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.monotonic() - started


def bytes_below(folder, pattern="*"):
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())


def plan(binary, counts):
    print("| items | plan: CPU | per item | peak memory | per item | plan on disk, per item | `status`: CPU, memory | `run` of one unit: CPU, memory |")
    print("|---|---|---|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            folder = Path(folder)
            varied_images(folder / "images", count)
            out = folder / "out"
            cpu, memory, _ = measured(binary, "plan", "images", folder / "images", "--out", out, "--quiet")
            stored = bytes_below(out / ".dsconvert")
            status = measured(binary, "status", out)
            part = measured(binary, "run", out, "--units", "0", "--threads", "1", "--quiet")
            print(
                f"| {count:,} | {cpu:.2f} s | {cpu / count * 1e6:.1f} µs | {memory:.0f} MiB | "
                f"{memory * 2**20 / count:.0f} B | {stored / count:.0f} B | {status[0]:.2f} s, {status[1]:.0f} MiB | "
                f"{part[0]:.2f} s, {part[1]:.0f} MiB |",
                flush=True,
            )


def merge(binary, counts, slow=False):
    print("| units | `run`: CPU per unit | `status` before: CPU, elapsed | after | `merge`: CPU, elapsed | memory | `--resume`: CPU, elapsed, memory |")
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            folder = Path(folder)
            listed = images(folder / "images", count, padding=UNIT_BYTES)
            out = folder / "out"
            options = [
                "images", folder / "images", "--files-from", listed, "--out", out,
                "--unit-bytes", UNIT_BYTES, "--encode", "png", "--format", "msgpack", "--quiet",
            ]  # fmt: skip
            measured(binary, "plan", *options)
            preload = slow_files(folder) if slow else None
            before = measured(binary, "status", out, preload=preload)
            run = measured(binary, "run", out, "--quiet")
            after = measured(binary, "status", out, preload=preload)
            merged = measured(binary, "merge", out, "--quiet", preload=preload)
            resumed = measured(binary, *options, "--resume", preload=preload)
            print(
                f"| {count:,} | {run[0] / count * 1e3:.2f} ms | {before[0]:.2f} s, {before[2]:.2f} s | "
                f"{after[0]:.2f} s, {after[2]:.2f} s | {merged[0]:.2f} s, {merged[2]:.2f} s | {merged[1]:.0f} MiB | "
                f"{resumed[0]:.2f} s, {resumed[2]:.2f} s, {resumed[1]:.0f} MiB |",
                flush=True,
            )


def records(binary, counts):
    print("| records | `run`: CPU per record | peak memory | `merge`: CPU | per record | peak memory |")
    print("|---|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            folder = Path(folder)
            (folder / "text").mkdir()
            for start in range(0, count, FILE_RECORDS):
                with (folder / f"text/{start:012}.jsonl").open("w") as file:
                    file.writelines('{"text":"a"}\n' for _ in range(start, min(start + FILE_RECORDS, count)))
            out = folder / "out"
            measured(binary, "plan", "text", folder / "text", "--out", out, "--tokenizer", "bytes", "--quiet")
            run = measured(binary, "run", out, "--quiet")
            cpu, memory, _ = measured(binary, "merge", out, "--quiet")
            print(
                f"| {count:,} | {run[0] / count * 1e6:.2f} µs | {run[1]:.0f} MiB | {cpu:.2f} s | {cpu / count * 1e6:.2f} µs | {memory:.0f} MiB |",
                flush=True,
            )


def of_threads(binary, counts):
    """Converts images and text with each number of threads."""
    sources = {
        "images": ("DSCONVERT_BENCH_IMAGES", ["--resize", "shorter:256", "--encode", "jpeg:90"]),
        "text": ("DSCONVERT_BENCH_CORPUS", ["--tokenizer", os.environ.get("DSCONVERT_BENCH_TOKENIZER", "")]),
    }
    for kind, (variable, options) in sources.items():
        if not (source := os.environ.get(variable)):
            continue
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            convert = partial(one_conversion, binary, kind, source, options, Path(folder))
            results = {count: [] for count in counts}
            for _ in range(int(os.environ.get("DSCONVERT_BENCH_ROUNDS", "3"))):
                for count in counts:
                    results[count].append(convert(count))
            print(f"| {kind}: threads | CPU time | relative | of it system | futex calls | switches: waiting, preempted | peak memory |")
            print("|---|---|---|---|---|---|---|")
            first = statistics.median(used.ru_utime + used.ru_stime for used, _ in results[counts[0]])
            for count, runs in results.items():
                column = lambda value: [value(used) for used, _ in runs]  # noqa: E731
                cpu = column(lambda used: used.ru_utime + used.ru_stime)
                system, waits, preempted, memory = (
                    statistics.median(column(value))
                    for value in (
                        lambda used: used.ru_stime,
                        lambda used: used.ru_nvcsw,
                        lambda used: used.ru_nivcsw,
                        lambda used: used.ru_maxrss / 1024,
                    )
                )
                print(
                    f"| {count} | {statistics.median(cpu):.2f} s ({min(cpu):.2f} to {max(cpu):.2f}) | "
                    f"{statistics.median(cpu) / first:.3f} | {system:.2f} s | {convert(count, counts_futex=True):,} | "
                    f"{waits:,.0f}, {preempted:,.0f} | {memory:.0f} MiB |",
                    flush=True,
                )
            report = results[counts[0]][-1][1]
            stages = {**report["seconds"], **report["thread_seconds"]}
            print(f"stages with {counts[0]} threads, of {report['bytes_in']:,} bytes and {report['records']:,} records:")
            print(", ".join(f"{name} {seconds:.3f} s" for name, seconds in stages.items()), flush=True)


def one_conversion(binary, kind, source, options, folder, threads, counts_futex=False):
    """Converts `source`. Returns the usage of the process and its run report, or the number of calls of futex."""
    out, report, calls = folder / "out", folder / "report.json", folder / "calls.txt"
    command = [binary, kind, source, "--out", out, "--threads", threads, "--report", report, "--quiet", *options]
    if counts_futex:
        command = ["strace", "-f", "-c", "-e", "trace=futex", "-o", calls, *command]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, f"{command}: exit status {os.waitstatus_to_exitcode(status)}"
    shutil.rmtree(out)
    if counts_futex:
        lines = [line.split() for line in calls.read_text().splitlines()]
        return next((int(line[3]) for line in lines if line[-1:] == ["futex"]), 0)
    return used, json.loads(report.read_text())


if __name__ == "__main__":
    what, binary, *counts = sys.argv[1:]
    modes = {"plan": plan, "merge": merge, "slow": partial(merge, slow=True), "records": records, "threads": of_threads}
    modes[what](Path(binary).resolve(strict=True), [int(count) for count in counts])
