"""Compares the CPU time of the whole command with that of a bare OpenCV loop in memory, in turn on one core.

    pip install opencv-python-headless
    python benches/images/opencv.py FOLDER DSCONVERT [--resize shorter:256] [--reduced 1|2|4] [--pairs 7] [--core 1]

The command lists, reads, checks, converts, hashes and commits; the loop only decodes, resizes (INTER_AREA) and encodes.
With --reduced, OpenCV decodes at that fraction of the size. Importing OpenCV and reading the files do not count.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

for folder in ["peers", "python"]:
    sys.path.append(str(pathlib.Path(__file__).parents[1] / folder))

from versions import in_turn, seconds  # noqa: E402


def loop(folder, resize, reduced):
    import cv2
    from images_opencv import convert

    cv2.setNumThreads(1)
    files = [path.read_bytes() for path in sorted(folder.rglob("*.[jJ]*")) if path.is_file()]
    flag = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}[reduced]
    start = time.process_time()
    for data in files:
        convert(data, resize, flag)
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
    (peer, own), ratios = in_turn(
        lambda: float(subprocess.check_output([sys.executable, *sys.argv, "--loop"])),
        lambda: seconds(args.binary, ["images", str(args.folder), "--format", "arrow", "--threads", "1", "--resize", args.resize, "--encode", "jpeg:90"], args.core),
        args.pairs,
    )
    print(f"{args.folder.name}, {args.resize}: OpenCV (1/{args.reduced}) {peer:.3f} s, dsconvert {own:.3f} s of CPU time (medians)")
    print(f"speed of dsconvert / OpenCV: median {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
