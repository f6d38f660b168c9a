"""Compares which damaged images dsconvert and Pillow reject, and prints one row per kind of file.

    python tests/python/mutants.py --count 20000 --binary target/release/dsconvert

Mutants are made from the files of image_samples.py by bit flips, cuts, runs of bytes, removed or repeated chunks,
changed length fields, and PNG chunks whose checksum was repaired. The same seed gives the same mutants."""

import argparse
import io
import json
import random
import struct
import subprocess
import tempfile
import warnings
import zlib
from collections import Counter
from pathlib import Path

from PIL import Image

import image_samples

ENCODINGS = ["keep", "jpeg:90"]


def jpeg_parts(data):
    """Start, end, and offset and width of the length field of each segment that has one."""
    at, found = 2, []
    while at + 4 <= len(data):
        if data[at] != 0xFF or data[at + 1] in (0, 0xFF) or 0xD0 <= data[at + 1] <= 0xD9:
            at += 1
            continue
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        found.append((at, end, at + 2, 2))
        at = end
    return found


def chunk_parts(data, start, layout, extra):
    """Start, end, and offset and width of the length field of each chunk of a PNG or WebP file."""
    at, found = start, []
    while at + 8 <= len(data):
        position = at if layout == ">I" else at + 4
        length = struct.unpack_from(layout, data, position)[0]
        end = at + 8 + length + extra + (length % 2 if layout == "<I" else 0)
        if end > len(data):
            break
        found.append((at, end, position, 4))
        at = end
    return found


def parts(name, data):
    if name.startswith("jpg"):
        return jpeg_parts(data)
    if name.startswith("png"):
        return chunk_parts(data, 8, ">I", 4)
    if name.startswith("webp"):
        return [(0, 12, 4, 4)] + chunk_parts(data, 12, "<I", 0)
    return []


def mutant(name, data, rng):
    """`data` with one kind of damage, and the kind."""
    out = bytearray(data)
    # Half of the damage is near the start, where the headers are.
    position = lambda: rng.randrange(min(len(out), 700)) if rng.random() < 0.5 else rng.randrange(len(out))
    found = parts(name, data)
    kinds = ["flip", "flip", "byte", "run", "cut", "tail", "delete", "insert", "repeat"]
    kinds += ["chunk removed", "chunk repeated", "length", "length", "inside a chunk"] if found else []
    kind = rng.choice(kinds)
    if kind == "flip":
        for _ in range(rng.randint(1, 3)):
            out[position()] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        out[position()] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    elif kind == "run":
        at, length = position(), rng.randint(2, 16)
        out[at : at + length] = rng.randbytes(length)
    elif kind == "cut":
        del out[rng.randrange(8, len(out)) :]
    elif kind == "tail":
        del out[-rng.randint(1, 8) :]
    elif kind == "delete":
        at = position()
        del out[at : at + rng.randint(1, 40)]
    elif kind == "insert":
        at = position()
        out[at:at] = rng.randbytes(rng.randint(1, 40))
    elif kind == "repeat":
        at, length = position(), rng.randint(1, 40)
        out[at:at] = out[at : at + length]
    else:
        start, end, field, width = rng.choice(found)
        if kind == "chunk removed":
            del out[start:end]
        elif kind == "chunk repeated":
            out[start:start] = out[start:end]
        elif kind == "length":
            value = int.from_bytes(out[field : field + width], "big") + rng.choice([-2, -1, 1, 2, 256, -256, 65536])
            out[field : field + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
        else:
            at = rng.randrange(start, end)
            out[at] ^= 1 << rng.randrange(8)
            if name.startswith("png"):
                out[end - 4 : end] = struct.pack(">I", zlib.crc32(out[start + 4 : end - 4]))
    return bytes(out), kind


def pillow_error(data):
    """The error with which Pillow fails to load `data`, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                image.load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def rejects(binary, folder, out, encoding):
    """Names of the files that dsconvert rejects, with the reason."""
    command = [binary, "images", folder, "--out", out, "--encode", encoding, "--max-rejects", "100%", "--quiet"]
    done = subprocess.run([*map(str, command), "--threads", "2"], capture_output=True, text=True)
    assert done.returncode == 0 and "panicked" not in done.stderr, f"exit status {done.returncode}: {done.stderr}"
    return read_rejects(out)


def read_rejects(out):
    """Code and message of each reject of a dataset, by the name of the file."""
    found = {}
    for line in (Path(out) / "rejects.jsonl").read_text().splitlines():
        reject = json.loads(line)
        found[reject["origin"].rsplit("/", 1)[-1]] = f"{reject['code']}: {reject['message']}"
    return found


def compare(binary, count, seed, work):
    """Makes the mutants and returns the counts by sample, with the files on which the two differ."""
    folder = Path(work) / "mutants"
    folder.mkdir()
    samples, rng, errors, made = image_samples.samples(), random.Random(seed), {}, {}
    for number in range(count):
        name = list(samples)[number % len(samples)]
        data, kind = mutant(name, samples[name], rng)
        file = f"{number:06}_{name.split('-')[1]}.{name.split('-')[0]}"
        (folder / file).write_bytes(data)
        errors[file], made[file] = pillow_error(data), (name, kind)
    # A valid file, so that there is always a record.
    (folder / "whole.png").write_bytes(samples["png-rgb"])
    rows, differing = {name: Counter() for name in samples}, []
    for encoding in ENCODINGS:
        found = rejects(binary, folder, Path(work) / encoding.replace(":", "-"), encoding)
        for file, error in errors.items():
            name, kind = made[file]
            ours = found.get(file)
            verdict = {(False, False): "both accept", (True, True): "both reject", (True, False): "only Pillow rejects",
                       (False, True): "only dsconvert rejects"}[error is not None, ours is not None]
            rows[name][verdict] += 1
            if verdict.startswith("only"):
                differing.append((verdict, encoding, file, kind, error or ours))
    return rows, differing


VERDICTS = ["both accept", "both reject", "only Pillow rejects", "only dsconvert rejects"]


def table(rows):
    lines = ["| file | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 1) + "|"]
    total = Counter()
    for name, row in rows.items():
        total.update(row)
        lines.append(f"| {name} | " + " | ".join(str(row[verdict]) for verdict in VERDICTS) + " |")
    lines.append("| all | " + " | ".join(str(total[verdict]) for verdict in VERDICTS) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5400, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--show", default="only Pillow rejects", help="verdict whose files are listed")
    parser.add_argument("--work", type=Path, help="keep the files in this new folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(exist_ok=True)
        rows, differing = compare(arguments.binary, arguments.count, arguments.seed, work)
    print(table(rows))
    for verdict, encoding, file, kind, reason in differing:
        if verdict == arguments.show:
            print(f"{encoding:8} {file:28} {kind:16} {reason}")


if __name__ == "__main__":
    main()
