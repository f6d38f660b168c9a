"""Checks `simulate` and `headspace` against real training loops. Prints the tables of docs/reference/headspace.md.

    python benches/python/loading_experiment.py [--images DIR] [--parts simulate,headspace] [--only NAME] [--batches 60] [--repeats 3]

simulate: DataLoaders with 0 to 4 workers over a raw folder of images, the converted dataset, and the raw folder with a
wait of 30 ms per image, as on a network disk. They feed a device that is busy for a known time, or a small CNN on the
CPU. The throughput with 2 to 4 workers is predicted from a trace of one worker, the time to hand over a ready batch,
and the step time on cached batches. A row holds if the prediction is within max(5%, twice the spread of the repeats) of
the measurement.

headspace: a delay is injected into loading. A row holds if the measured gain is within max(1 point, 10% of the gain) of
the difference between whole runs with loading and whole runs without.

The machine should be idle. Needs torch and Pillow, and a `dsconvert` in PATH or DSCONVERT_BIN.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

import dsconvert
from dsconvert.lab.benchmark import load_times
from dsconvert.lab.worker_prediction import cores_of

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
from fake_device import FakeDevice  # noqa: E402

SIDE = 64
BATCH_SIZE = 8
WAIT_S = 0.03
PREFETCH = 2
TAKEN_READY = 8
CORES = len(os.sched_getaffinity(0))

warnings.filterwarnings("ignore", message="This DataLoader will create")


def to_tensor(image):
    """Returns the center crop of an image, as model input."""
    top, left = (max(0, side - SIDE) // 2 for side in image.shape[:2])
    crop = image[top : top + SIDE, left : left + SIDE].astype(np.float32) / 255
    padded = np.zeros((SIDE, SIDE, 3), np.float32)
    padded[: crop.shape[0], : crop.shape[1]] = crop
    return torch.from_numpy(padded).permute(2, 0, 1), 0


def decodes(path):
    """Returns whether Pillow can read the file: some of the photographs in fixtures/ are damaged."""
    try:
        with Image.open(path) as image:
            image.convert("RGB")
    except OSError:
        return False
    return True


class Folder(Dataset):
    """Raw images on disk, decoded and resized each time."""

    def __init__(self, files, length, wait_s=0.0):
        self.files, self.length, self.wait_s = files, length, wait_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.wait_s:
            time.sleep(self.wait_s)
        with Image.open(self.files[index % len(self.files)]) as image:
            scale = (SIDE + 8) / min(image.size)
            size = tuple(max(SIDE, round(side * scale)) for side in image.size)
            return to_tensor(np.asarray(image.convert("RGB").resize(size)))


class Converted(Dataset):
    """The same images after conversion, decoded at a small size."""

    def __init__(self, split, length):
        self.split, self.length = split, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return to_tensor(self.split[index % len(self.split)]["image"])


class Busy:
    """A step that waits for a simulated device that is busy for a known time."""

    uses_a_core = False

    def __init__(self, step_s):
        self.device, self.step_s = FakeDevice(), step_s

    def __call__(self, batch):
        self.device.submit(self.step_s)
        self.device.synchronize()


class Cnn:
    """Training of a small CNN on one core."""

    uses_a_core = True

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 48, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def __call__(self, batch):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def loader_of(dataset, workers):
    return DataLoader(
        dataset, batch_size=BATCH_SIZE, num_workers=workers, prefetch_factor=PREFETCH if workers else None
    )


def batches_per_second(dataset, workers, step):
    """Returns the throughput from the arrival of the first batch to the end of the last step, as in the simulation."""
    first, count, end = None, 0, 0.0
    for batch in loader_of(dataset, workers):
        first = first or time.perf_counter()
        step(batch)
        count += 1
        end = time.perf_counter()  # after the last batch, the loader waits for its workers to exit
    return count / (end - first)


def step_ms_of(dataset, step, batches):
    """Returns the time of a step on batches in memory."""
    batch = next(iter(loader_of(dataset, 0)))
    for _ in range(3):
        step(batch)
    times = []
    for _ in range(batches):
        start = time.perf_counter()
        step(batch)
        times.append(time.perf_counter() - start)
    return statistics.fmean(times) * 1e3


def trace_of(dataset, batches):
    """Returns the milliseconds between batches of one worker that never waits, and of `next()` when a batch is
    ready."""
    batches_of_one = iter(loader_of(dataset, 1))
    next(batches_of_one)
    loads = []
    for _ in range(batches - 1 - TAKEN_READY):
        start = time.perf_counter()
        next(batches_of_one)
        loads.append((time.perf_counter() - start) * 1e3)
    ready = []
    for _ in range(TAKEN_READY):
        time.sleep(1.5 * max(loads) / 1e3)
        start = time.perf_counter()
        next(batches_of_one)
        ready.append((time.perf_counter() - start) * 1e3)
    return loads, statistics.median(ready)


def check_simulate(datasets, steps, args):
    print(f"\n{CORES} cores, batches of {BATCH_SIZE}, {args.batches} batches, median of {args.repeats} runs\n")
    print("| data | load, CPU | hand-over | step | workers | measured | spread | simulated | off by | min(W/load, 1/step) | off by | holds |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    held = rows = better = knees = 0
    for data_name, dataset in datasets.items():
        loads, transfer_ms = trace_of(dataset, args.batches)
        load_ms = statistics.fmean(loads)
        _, cpu = load_times(loader_of(dataset, 0), 20, 60)
        for step_name, step in steps.items():
            step_ms = step_ms_of(dataset, step, args.batches)
            for workers in range(5):
                runs = [batches_per_second(dataset, workers, step) for _ in range(args.repeats)]
                measured = statistics.median(runs)
                spread = (max(runs) - min(runs)) / measured
                formula = 1e3 / max(load_ms / workers, step_ms) if workers else 1e3 / (load_ms + step_ms)
                # Without workers there is nothing to simulate: the two times add up.
                simulated = formula
                if workers:
                    simulated = simulate(loads, step_ms, transfer_ms, workers, cpu, step.uses_a_core, args.batches)
                error, formula_error = simulated / measured - 1, formula / measured - 1
                holds = abs(error) <= max(0.05, 2 * spread)
                is_knee = workers > 1 and 0.6 <= load_ms / workers / step_ms <= 1.6
                if workers > 1:
                    rows, held = rows + 1, held + holds
                knees, better = knees + is_knee, better + (is_knee and abs(error) <= abs(formula_error))
                verdict = "" if workers == 0 else "(trace)" if workers == 1 else "yes" if holds else "no"
                print(
                    f"| {data_name} | {load_ms:.1f} ms, {cpu:.0%} | {transfer_ms:.1f} ms | {step_name}, {step_ms:.1f} ms "
                    f"| {workers} | {measured:.2f}/s | {spread:.1%} | {simulated:.2f}/s | {error:+.1%} | {formula:.2f}/s "
                    f"| {formula_error:+.1%} | {verdict}{', knee' if is_knee else ''} |",
                    flush=True,
                )
    print(f"\n{held} of {rows} predictions hold; at the knee, {better} of {knees} are at least as near as the formula.")


def simulate(loads, step_ms, transfer_ms, workers, cpu, step_uses_a_core, batches):
    """Returns the predicted batches per second. Work that needs a core shares the cores of the machine."""
    options = {"cores": cores_of(cpu)} if cores_of(cpu) is not None else {}
    if options and step_uses_a_core:
        options["step_core"] = True
    done = dsconvert.simulate(
        load_trace=loads, step_ms=step_ms, transfer_ms=transfer_ms, workers=workers, prefetch=PREFETCH, batches=batches,
        **options,
    )
    return done["batches"] / (done["seconds"] - done["first_batch_ms"] / 1e3)


class Delayed(Dataset):
    """A dataset in memory whose batches are delayed."""

    def __init__(self, length, delay_s):
        self.length, self.delay_s = length, delay_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index % BATCH_SIZE == 0:
            time.sleep(self.delay_s)
        return torch.zeros(3, SIDE, SIDE), 0


def whole_run_ms(batches, step, synchronize, steps):
    """Returns the time per step over a whole run without stretches: from the first batch to the batch after the last
    step."""
    batches = iter(batches)
    batch = next(batches)
    synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step(batch)
        batch = next(batches)
    synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def check_headspace(args):
    cnn, device = Cnn(), FakeDevice()
    steps = {
        "device, 30 ms, waited for": (Busy(0.03), lambda: None),
        "device, 30 ms, queued": (lambda _: device.submit(0.03), device.synchronize),
        "CNN on the CPU": (cnn, lambda: None),
    }
    print("\n| step | workers | delay per batch | whole runs | headspace | 95% interval | wait in next() | off by | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    held = rows = 0
    for name, (step, synchronize) in steps.items():
        if args.only not in name:
            continue
        for workers, delay_ms in ((0, 5), (0, 20), (0, 45), (2, 20), (2, 80), (2, 120)):
            dataset = Delayed(100_000, delay_ms / 1e3)
            cached = [default_collate([dataset[1]] * BATCH_SIZE)] * (args.batches + 1)
            # Runs alternate, so that noise affects both.
            gains = []
            for _ in range(args.repeats):
                real = whole_run_ms(loader_of(dataset, workers), step, synchronize, args.batches)
                gains.append(1 - whole_run_ms(cached, step, synchronize, args.batches) / real)
            gain = statistics.median(gains)
            report = dsconvert.headspace(
                loader_of(dataset, workers), step, steps=args.batches * 8, synchronize=synchronize, predict=False
            )
            off = abs(report.gain - gain)
            holds = off <= max(0.01, 0.1 * gain)
            rows, held = rows + 1, held + holds
            low, high = report.gain_interval or (float("nan"),) * 2
            print(
                f"| {name} | {workers} | {delay_ms} ms | {gain:.1%} ({min(gains):.1%} to {max(gains):.1%}) | {report.gain:.1%} | {low:.1%} to {high:.1%} "
                f"| {report.wait_ms:.1f} ms | {off * 100:.1f} points | {'yes' if holds else 'no'} |",
                flush=True,
            )
    print(f"\n{held} of {rows} gains are found.")


def convert(images, out):
    binary = os.environ.get("DSCONVERT_BIN", "dsconvert")
    options = ["--resize", f"shorter:{SIDE + 8}", "--encode", "jpeg:90"]
    subprocess.run([binary, "images", images, "--out", out, *options], check=True, capture_output=True)
    return dsconvert.open(out, decode=True).default


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, default=ROOT / "fixtures/photos", help="folder of images")
    parser.add_argument("--parts", default="simulate,headspace", help="experiments to run, separated by commas")
    parser.add_argument("--batches", type=int, default=60, help="batches of a run")
    parser.add_argument("--repeats", type=int, default=3, help="runs, of which the median counts")
    parser.add_argument("--only", default="", help="only data (simulate) and steps (headspace) whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "simulate" in args.parts:
        with tempfile.TemporaryDirectory() as directory:
            split = convert(args.images, Path(directory, "converted"))
            files = [path for path in sorted(args.images.rglob("*")) if path.is_file() and decodes(path)]
            length = args.batches * BATCH_SIZE
            datasets = {
                "raw, waits 30 ms per image": Folder(files, length, WAIT_S),
                "raw": Folder(files, length),
                "converted": Converted(split, length),
            }
            datasets = {name: data for name, data in datasets.items() if args.only in name}
            check_simulate(datasets, {"device": Busy(0.08), "CNN": Cnn()}, args)
    if "headspace" in args.parts:
        check_headspace(args)


if __name__ == "__main__":
    main()
