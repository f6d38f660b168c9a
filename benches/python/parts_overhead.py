"""Measures the cost of dividing a conversion: parts, and Ray, against one plain run, in CPU time and elapsed time.

    python benches/python/parts_overhead.py target/release/dsconvert IMAGES [--images N] [--parts N] [--rounds N] [--no-ray]

IMAGES is a folder of photographs, which are linked repeatedly until there are N. Each round runs, one after the other,
a plain conversion with two threads; a plan, its parts one after the other with two threads, and the merge; and a
conversion by `dsconvert.ray` on a local cluster with two nodes of one CPU each. CPU time is the user and system time of
all processes. For Ray, it includes its own processes and the driver, but not the start of the cluster. The first
conversion with Ray starts its workers and does not count.

The commands of the Ray tasks import the installed package, and then execute the given binary. Without this, a package
from a debug build would be measured.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
# Ray starts its workers with niceness 15, so that they would hardly run on a machine with other load.
os.environ["RAY_worker_niceness"] = "0"
TICKS = os.sysconf("SC_CLK_TCK")
OPTIONS = ["--resize", "shorter:256", "--unit-bytes", "64MiB", "--quiet"]

EXECUTES_THE_BINARY = """\
import os
import sys

if "dsconvert.ray.child" in sys.orig_argv:
    from dsconvert.ray.child import stop_with

    parent, *arguments = sys.orig_argv[sys.orig_argv.index("dsconvert.ray.child") + 1 :]
    stop_with(int(parent))
    os.execv(BINARY, [BINARY, *arguments])
"""


def linked(images, folder, count):
    """Links the images into a folder, each as often as needed."""
    originals = sorted(path for path in images.rglob("*") if path.is_file())
    for number in range(count):
        original = originals[number % len(originals)]
        target = folder / f"{number // len(originals):04}" / original.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if number < len(originals):
            target.write_bytes(original.read_bytes())
        else:
            os.link(folder / "0000" / original.name, target)
    return folder


def command(*words):
    """Runs a command, and returns its CPU and elapsed seconds."""
    started = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, words
    return used.ru_utime + used.ru_stime, time.monotonic() - started


def cpu_of_tree():
    """Returns the CPU seconds of this process and of all its descendants, including those that have ended."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(folder.name)] = int(words[1]), sum(map(int, words[11:15])) / TICKS
    tree, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in stats.items() if parent in tree} - tree
        tree |= more
        grown = bool(more)
    return sum(stats[pid][1] for pid in tree if pid in stats)


def in_parts(binary, images, out, parts):
    spent = [command(binary, "plan", "images", images, "--out", out, *OPTIONS)]
    for part in range(1, parts + 1):
        spent.append(command(binary, "run", out, "--part", f"{part}/{parts}", "--threads", 2, "--quiet"))
    spent.append(command(binary, "merge", out, "--quiet"))
    return [sum(column) for column in zip(*spent)]


def with_ray(images, out):
    import dsconvert.ray

    cpu, started = cpu_of_tree(), time.monotonic()
    report = dsconvert.ray.convert("images", images, out, resize="shorter:256", unit_bytes="64MiB", num_cpus=1)
    return cpu_of_tree() - cpu, time.monotonic() - started, report.tasks


def manifest(out):
    return (out / "manifest.json").read_bytes()


def rounds(own, folder, images, ray=None):
    """Returns the CPU and elapsed seconds of each kind of conversion, round by round."""
    found = []
    for number in range(own.rounds):
        outs = [folder / f"{kind}-{number}" for kind in ("plain", "parts", "ray")]
        plain = command(own.binary, "images", images, "--out", outs[0], "--threads", 2, *OPTIONS)
        parts = in_parts(own.binary, images, outs[1], own.parts)
        text = f"round {number + 1}: plain {plain[0]:.1f} s of CPU, {plain[1]:.1f} s; parts {parts[0]:.1f}, {parts[1]:.1f}"
        on_ray = None
        if ray is None:
            outs.pop()
        else:
            *on_ray, tasks = with_ray(images, outs[2])
            text += f"; Ray {on_ray[0]:.1f}, {on_ray[1]:.1f}, {tasks} tasks"
        assert len({manifest(out) for out in outs}) == 1, "all datasets are identical"
        found.append((plain, parts, on_ray))
        print(text, flush=True)
        for out in outs:
            shutil.rmtree(out)
    return found


def rounds_with_ray(own, folder, images):
    """Runs the rounds, including Ray, on a local cluster whose workers have already started."""
    import ray
    from ray.cluster_utils import Cluster

    few = linked(own.images, folder / "few", 250)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    with_ray(few, folder / "warm")
    found = rounds(own, folder, images, ray)
    ray.shutdown()
    cluster.shutdown()
    return found


def row(name, ratios):
    return f"| {name} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda path: Path(path).resolve(strict=True))
    parser.add_argument("images", type=Path)
    parser.add_argument("--images", dest="count", type=int, default=25_000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-ray", action="store_true", help="measure parts only")
    own = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("DSCONVERT_BENCH_DIR")) as folder:
        folder = Path(folder)
        (folder / "site").mkdir()
        (folder / "site/sitecustomize.py").write_text(f"BINARY = {str(own.binary)!r}\n{EXECUTES_THE_BINARY}")
        os.environ["PYTHONPATH"] = str(folder / "site")
        images = linked(own.images, folder / "images", own.count)
        found = rounds(own, folder, images) if own.no_ray else rounds_with_ray(own, folder, images)
    print(f"| {own.count:,} photographs, relative to a plain run | median | range |\n|---|---|---|")
    print(row(f"{own.parts} parts, CPU time", [parts[0] / plain[0] for plain, parts, _ in found]))
    print(row(f"{own.parts} parts, elapsed", [parts[1] / plain[1] for plain, parts, _ in found]))
    if not own.no_ray:
        print(row("Ray, CPU time", [on_ray[0] / plain[0] for plain, _, on_ray in found]))
        print(row("Ray, elapsed", [on_ray[1] / plain[1] for plain, _, on_ray in found]))


if __name__ == "__main__":
    sys.exit(main())
