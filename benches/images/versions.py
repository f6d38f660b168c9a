"""CPU time of whole conversions by two builds of the command, run in turn on one core.

    python benches/images/versions.py FOLDER BEFORE AFTER [--resize shorter:256] [--pairs 9] [--core 1]

The machine may be busy: CPU time (user and system) of the process counts, each build runs right after the other, and the
median of the ratios of the pairs is reported.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import tempfile


def seconds(binary, folder, resize, core):
    """CPU time of one conversion."""
    scratch = tempfile.mkdtemp()
    try:
        command = [binary, "images", folder, "--out", f"{scratch}/out", "--format", "arrow", "--threads", "1"]
        command += ["--resize", resize, "--encode", "jpeg:90"]
        process = os.fork()
        if process == 0:
            os.sched_setaffinity(0, {core})
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.execv(binary, command)
        _, status, usage = os.wait4(process, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"{binary} failed")
        return usage.ru_utime + usage.ru_stime
    finally:
        shutil.rmtree(scratch)


def in_turn(first, second, pairs):
    """CPU time of two measurements (medians), made in turn, and the sorted ratios of first to second."""
    # The first pair fills the cache of the file system.
    pairs = [(first(), second()) for _ in range(pairs + 1)][1:]
    return [statistics.median(times) for times in zip(*pairs)], sorted(a / b for a, b in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("binaries", nargs=2)
    parser.add_argument("--resize", default="shorter:256")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--core", type=int, default=1)
    args = parser.parse_args()
    runs = [lambda binary=binary: seconds(binary, str(args.folder), args.resize, args.core) for binary in args.binaries]
    (before, after), ratios = in_turn(*runs, args.pairs)
    print(f"{args.folder.name}, {args.resize}: before {before:.3f} s, after {after:.3f} s of CPU time (medians)")
    print(f"speed after / before: median {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}")


if __name__ == "__main__":
    main()
