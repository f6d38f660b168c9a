"""Compares the CPU time of a whole command in two builds, run in turn on the same core.

    python benches/python/versions.py BEFORE AFTER [--pairs 15] [--core 1] -- images FOLDER --resize shorter:256 --threads 1

`--out` and `--quiet` are added. The machine may be busy: only CPU time (user and system) of the processes counts, each
build runs right after the other, and the order of a pair alternates. The median of the ratios is reported with their
range. The last line is a bound with 95 % confidence on how much slower the second build is, from the sign test for a
median.
"""

import argparse
import math
import os
import shutil
import statistics
import tempfile


def seconds(binary, arguments, core):
    """Returns the CPU time of one run of `binary`, which must succeed."""
    scratch = tempfile.mkdtemp()
    try:
        process = os.fork()
        if process == 0:
            os.sched_setaffinity(0, {core})
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.execv(binary, [binary, *arguments, "--out", f"{scratch}/out", "--quiet"])
        _, status, usage = os.wait4(process, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"{binary} {' '.join(arguments)} failed")
        return usage.ru_utime + usage.ru_stime
    finally:
        shutil.rmtree(scratch)


def in_turn(first, second, pairs):
    """Returns the median CPU times of two measurements, made in turn, and the sorted ratios of first to second."""
    times = []
    # The first pair fills the cache of the file system, and does not count.
    for pair in range(pairs + 1):
        times.append((first(), second()) if pair % 2 else (second(), first())[::-1])
    return [statistics.median(column) for column in zip(*times[1:])], sorted(a / b for a, b in times[1:])


def lower_bound(ratios):
    """Returns a lower bound of the median with 95 % confidence: the largest order statistic that the sign test allows.

    Returns None if there are too few ratios for a bound.
    """
    count, chance, rank = len(ratios), 0.0, 0
    for below in range(count):
        chance += math.comb(count, below) / 2**count
        if chance > 0.05:
            break
        rank = below + 1
    return ratios[rank - 1] if rank else None


def compare(first_name, first, second_name, second, pairs):
    """Measures `first` and `second` in turn, and prints their CPU times and the speed of `second`."""
    (one, other), ratios = in_turn(first, second, pairs)
    print(f"{first_name} {one:.3f} s, {second_name} {other:.3f} s of CPU time (medians of {pairs} pairs)")
    median = statistics.median(ratios)
    print(f"speed {second_name} / {first_name}: median {median:.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}")
    bound = lower_bound(ratios)
    if bound:
        print(f"95 %: at least {bound:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binaries", nargs=2, metavar="BINARY")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("arguments", nargs="+")
    args = parser.parse_args()
    before, after = (
        lambda binary=binary: seconds(binary, args.arguments, args.core) for binary in args.binaries
    )
    print(" ".join(args.arguments))
    compare("before", before, "after", after, args.pairs)


if __name__ == "__main__":
    main()
