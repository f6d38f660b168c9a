"""Measures what plans, parts and commits cost with many items and many units.

    python benches/python/scale_measure.py plan target/release/dsconvert 10000 100000 1000000
    python benches/python/scale_measure.py merge target/release/dsconvert 1000 10000
    python benches/python/scale_measure.py records target/release/dsconvert 100000 1000000

`plan` makes hard links of one small image and a list of their names (`--files-from`), and measures `plan`, `status` and
`run --units 0`, which converts one unit of the plan. `merge` makes units of one image each and measures `run`, `status`
and `merge`. `records` converts documents of one byte, and measures `merge` per record. Figures are CPU seconds (user and system) and peak resident memory of each process; elapsed time depends on
the disk and on other load.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

# ext4 allows 65,000 links to a file.
LINKS = 60_000
FOLDER = 1_000
UNIT_BYTES = 64 << 10


def png(padding=0):
    """A picture of one pixel, with a chunk of `padding` bytes that decoders skip."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\x80\x80\x80"))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"teSt", bytes(padding)) + pixels + chunk(b"IEND", b"")


def images(folder, count, padding=0):
    """A list of `count` images, which are hard links."""
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


def measured(*command):
    """CPU seconds, peak MiB and elapsed seconds of a command.

    The peak is at least that of this process, which the child starts as a copy of: nothing large is kept here.
    """
    started = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
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
            listed = images(folder / "images", count)
            out = folder / "out"
            cpu, memory, _ = measured(
                binary, "plan", "images", folder / "images", "--files-from", listed, "--out", out, "--quiet"
            )
            stored = bytes_below(out / ".dsconvert")
            status = measured(binary, "status", out)
            part = measured(binary, "run", out, "--units", "0", "--threads", "1", "--quiet")
            print(
                f"| {count:,} | {cpu:.2f} s | {cpu / count * 1e6:.1f} µs | {memory:.0f} MiB | "
                f"{memory * 2**20 / count:.0f} B | {stored / count:.0f} B | {status[0]:.2f} s, {status[1]:.0f} MiB | "
                f"{part[0]:.2f} s, {part[1]:.0f} MiB |",
                flush=True,
            )


def merge(binary, counts):
    print("| units | `run`: CPU per unit | `status`: CPU per unit | `merge`: CPU | per unit | elapsed per unit | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            folder = Path(folder)
            listed = images(folder / "images", count, padding=UNIT_BYTES)
            out = folder / "out"
            measured(
                binary, "plan", "images", folder / "images", "--files-from", listed, "--out", out,
                "--unit-bytes", UNIT_BYTES, "--encode", "png", "--format", "msgpack", "--quiet",
            )  # fmt: skip
            run = measured(binary, "run", out, "--quiet")
            status = measured(binary, "status", out)
            cpu, memory, elapsed = measured(binary, "merge", out, "--quiet")
            print(
                f"| {count:,} | {run[0] / count * 1e3:.2f} ms | {status[0] / count * 1e6:.0f} µs | {cpu:.2f} s | "
                f"{cpu / count * 1e6:.0f} µs | {elapsed / count * 1e6:.0f} µs | {memory:.0f} MiB |",
                flush=True,
            )


def records(binary, counts):
    print("| records | `run`: CPU per record | `merge`: CPU | per record | peak memory |")
    print("|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
            folder = Path(folder)
            with (folder / "short.jsonl").open("w") as file:
                file.writelines('{"text":"a"}\n' for _ in range(count))
            out = folder / "out"
            measured(binary, "plan", "text", folder / "short.jsonl", "--out", out, "--tokenizer", "bytes", "--quiet")
            run = measured(binary, "run", out, "--quiet")
            cpu, memory, _ = measured(binary, "merge", out, "--quiet")
            print(
                f"| {count:,} | {run[0] / count * 1e6:.2f} µs | {cpu:.2f} s | {cpu / count * 1e6:.2f} µs | {memory:.0f} MiB |",
                flush=True,
            )


if __name__ == "__main__":
    what, binary, *counts = sys.argv[1:]
    {"plan": plan, "merge": merge, "records": records}[what](Path(binary).resolve(strict=True), [int(count) for count in counts])
