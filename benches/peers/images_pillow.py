"""Runs Pillow on the task of `benches/image_engines`: JPEG in, resized JPEG out, one thread, files in memory.

    python images_pillow.py FOLDER [shorter:256|longer:512] [--rounds 5]

The fastest of an image's rounds counts. `draft` lets libjpeg decode at a reduced size, as `Image.thumbnail` does.
"""

import argparse
import io
import pathlib
import time

from PIL import Image


def target(size, task):
    kind, wanted = task.split(":")
    side = min(size) if kind == "shorter" else max(size)
    wanted = int(wanted)
    if side <= wanted:
        return size
    return tuple(max(1, (s * wanted + side // 2) // side) for s in size)


def convert(data, task, draft):
    image = Image.open(io.BytesIO(data))
    wanted = target(image.size, task)
    if draft:
        image.draft("RGB", (wanted[0] * 2, wanted[1] * 2))
    image = image.convert("RGB").resize(wanted, Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, subsampling="4:2:0")
    return out.getbuffer().nbytes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("task", nargs="?", default="shorter:256")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    files = [p.read_bytes() for p in sorted(args.folder.rglob("*")) if p.is_file()]
    files = [f for f in files if f.startswith(b"\xff\xd8")]
    for draft in (False, True):
        best = [float("inf")] * len(files)
        for _ in range(args.rounds):
            for i, data in enumerate(files):
                start = time.perf_counter()
                convert(data, args.task, draft)
                best[i] = min(best[i], time.perf_counter() - start)
        name = "Pillow, draft" if draft else "Pillow"
        print(f"{name:<40} {len(files) / sum(best):8.1f} images/s  ({args.task}, {len(files)} done)")


if __name__ == "__main__":
    main()
