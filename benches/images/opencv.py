"""Images per second of CPU time: the whole command beside a bare OpenCV loop in memory, in turn on one core.

    pip install opencv-python-headless
    python benches/images/opencv.py FOLDER DSCONVERT [--resize shorter:256] [--reduced 1|2|4] [--pairs 7] [--core 1]

The command lists, reads, checks, converts, hashes and commits; the loop only decodes, resizes (INTER_AREA) and encodes. With
--reduced, OpenCV decodes at that fraction of the size. Importing OpenCV and reading the files do not count.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

from versions import seconds


def loop(folder, resize, reduced):
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    files = [np.fromfile(path, np.uint8) for path in sorted(folder.rglob("*.[jJ]*")) if path.is_file()]
    flag = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}[reduced]
    kind, wanted = resize.split(":")
    start = time.process_time()
    for data in files:
        image = cv2.imdecode(data, flag)
        side = (min if kind == "shorter" else max)(image.shape[:2])
        if side > int(wanted):
            size = [max(1, round(length * int(wanted) / side)) for length in image.shape[1::-1]]
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])
    print(time.process_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("binary")
    parser.add_argument("--resize", default="shorter:256")
    parser.add_argument("--reduced", type=int, default=1, choices=[1, 2, 4])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        return loop(args.folder, args.resize, args.reduced)
    os.sched_setaffinity(0, {args.core})
    pairs = []
    for _ in range(args.pairs + 1):
        peer = float(subprocess.check_output([sys.executable, *sys.argv, "--loop"]))
        pairs.append((peer, seconds(args.binary, str(args.folder), args.resize, args.core)))
    # The first pair fills the cache of the file system.
    ratios = sorted(peer / own for peer, own in pairs[1:])
    peer, own = (statistics.median(pair[i] for pair in pairs[1:]) for i in range(2))
    print(f"{args.folder.name}, {args.resize}: OpenCV (1/{args.reduced}) {peer:.3f} s, dsconvert {own:.3f} s of CPU time (medians)")
    print(f"speed of dsconvert / OpenCV: median {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
