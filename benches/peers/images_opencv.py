"""Runs OpenCV on the task of `benches/image_engines`: JPEG in, resized JPEG out, one thread, files in memory.

    python images_opencv.py FOLDER [shorter:256|longer:512] [--rounds 5]

The fastest of an image's rounds counts. INTER_AREA is OpenCV's filter for shrinking.
"""

import argparse
import pathlib
import time

import cv2
import numpy as np


def convert(data, task, flag=cv2.IMREAD_COLOR):
    """Resizes a JPEG, encodes it with quality 90, and returns its new size in bytes. A `flag` such as
    IMREAD_REDUCED_COLOR_4 decodes it at a fraction of its size."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    height, width = image.shape[:2]
    kind, wanted = task.split(":")
    side, wanted = (min if kind == "shorter" else max)(width, height), int(wanted)
    if side > wanted:
        size = tuple(max(1, (s * wanted + side // 2) // side) for s in (width, height))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    _, out = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return len(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("task", nargs="?", default="shorter:256")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cv2.setNumThreads(1)
    files = [p.read_bytes() for p in sorted(args.folder.rglob("*")) if p.is_file()]
    files = [f for f in files if f.startswith(b"\xff\xd8")]
    best = [float("inf")] * len(files)
    for _ in range(args.rounds):
        for i, data in enumerate(files):
            start = time.perf_counter()
            convert(data, args.task)
            best[i] = min(best[i], time.perf_counter() - start)
    print(f"{'OpenCV, INTER_AREA':<40} {len(files) / sum(best):8.1f} images/s  ({args.task}, {len(files)} done)")


if __name__ == "__main__":
    main()
