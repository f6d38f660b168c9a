"""The Python package: `headspace` measures the cost of loading, with a device that computes asynchronously."""

import json
import os
import random
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import dsconvert
from conftest import ROOT
from dsconvert.lab import batch_loads, headspace_probe, headspace_report
from dsconvert.lab.headspace_probe import choose
from dsconvert.lab.worker_prediction import WorkerPrediction, cores_of
from fake_device import VirtualDevice, VirtualTime, VirtualWorkers


class Loader:
    """A loader that calls `load` before it yields each batch."""

    def __init__(self, length, load=lambda: None, batch=None):
        self.length, self.load = length, load
        self.batch = batch or (lambda i: {"x": np.full((4, 8), i)})

    def __len__(self):
        return self.length

    def __iter__(self):
        for i in range(self.length):
            self.load()
            yield self.batch(i)


@pytest.fixture
def clock(monkeypatch):
    """A virtual clock for the probe."""
    clock = VirtualTime()
    monkeypatch.setattr(headspace_probe, "perf_counter", clock)
    return clock


def measure(clock, load_s, step_s, waits, workers=0, **options):
    """A report on batches that load in `load_s` and steps of `step_s`, in virtual time. Steps may wait for the device."""
    device = VirtualDevice(clock)

    def step(_):
        device.submit(step_s)
        if waits:
            device.synchronize()

    load = load_s if callable(load_s) else lambda _: load_s
    loader = VirtualWorkers(clock, 2000, load, max(1, workers))
    if not workers:
        loader = Loader(2000, lambda: clock.sleep(load_s))
    options = {"steps": 240, "warmup": 2, "ahead": loader.ahead if workers else 0, "predict": False, **options}
    return dsconvert.headspace(loader, step, synchronize=device.synchronize, **options)


def test_the_cost_of_loading_is_measured(clock):
    report = measure(clock, 0.06, 0.12, waits=True)
    assert report.gain == pytest.approx(1 / 3) and report.gain_interval == pytest.approx((1 / 3, 1 / 3))
    assert (report.step_ms, report.cached_step_ms, report.wait_ms) == pytest.approx((180, 120, 60))
    assert report.verdict == "loading costs 33.3% of the training time"


def test_loading_that_overlaps_the_device_costs_nothing(clock):
    # next() takes 100 ms in each step, and the device is busy all the time.
    report = measure(clock, 0.1, 0.12, waits=False)
    assert report.wait_ms == pytest.approx(100) and report.gain == pytest.approx(0)
    assert report.verdict == "loading is not the bottleneck: optimize the model instead"
    report = measure(clock, 0.24, 0.12, waits=False)
    assert report.gain == pytest.approx(0.5)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("load_s", [0.1, 0.3, 0.36, 0.39, 0.45, 0.6, 1.2])
def test_the_gain_is_right_with_workers_that_load_ahead(clock, load_s, waits):
    # Three workers suffice up to 0.36 s. Batches that they prepare during cached stretches must not count as a gain.
    report = measure(clock, load_s, 0.12, waits, workers=3, stretch=24)
    gain = max(0, 1 - 0.36 / load_s)
    assert abs(report.gain - gain) < max(0.01, 0.1 * gain), report


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_gain_is_right_with_random_load_times(clock, workers):
    rng = random.Random(3)
    loads = [rng.gammavariate(4, 0.1 * workers) for _ in range(3000)]
    # A step takes half the time that the workers need per batch.
    report = measure(clock, loads.__getitem__, 0.2, True, workers=workers, steps=1600, stretch=40)
    assert abs(report.gain - 0.5) < 0.1, report
    assert report.gain_interval[0] < report.gain < report.gain_interval[1]


def test_a_steady_drift_cancels_out(clock):
    # Steps get slower over time, as on a device that heats up.
    def step(_):
        clock.sleep(0.1 + clock.now * 1e-3)

    report = dsconvert.headspace(
        Loader(2000, lambda: clock.sleep(0.1)), step, ahead=0, predict=False, synchronize=lambda: None
    )
    loading = (report.step_ms - report.cached_step_ms) / 100
    assert loading == pytest.approx(1, rel=0.02), report


def test_stretches_are_measured_with_the_clock_of_the_system():
    start = time.perf_counter()
    report = dsconvert.headspace(
        Loader(100, lambda: time.sleep(0.002)), lambda _: time.sleep(0.001), steps=16, stretch=4, warmup=2, ahead=0,
        predict=False, synchronize=lambda: None,
    )
    assert 0 < sum(stretch.seconds for stretch in report.stretches) <= time.perf_counter() - start
    for stretch in report.stretches:  # a sleep never ends early
        assert stretch.seconds >= stretch.steps * (0.003 if stretch.is_real else 0.001)
        assert stretch.wait_seconds >= stretch.steps * (0.002 if stretch.is_real else 0)


def test_only_ends_of_stretches_are_synchronized():
    calls = []
    report = dsconvert.headspace(
        Loader(300), lambda _: None, steps=80, stretch=10, warmup=2, ahead=2, predict=False,
        synchronize=lambda: calls.append(1),
    )
    assert report.pairs == 4 and len(calls) == 6 * 4
    assert sum(s.steps for s in report.stretches if s.is_real) == sum(
        s.steps for s in report.stretches if not s.is_real
    )


def test_a_pair_is_a_real_stretch_between_halves_of_a_cached_one():
    report = dsconvert.headspace(Loader(900), lambda _: None, steps=400, warmup=2, ahead=0, predict=False)
    kinds = [[s.is_real for s in report.stretches if s.pair == pair] for pair in range(report.pairs)]
    assert kinds == [[False, True, False]] * report.pairs
    lengths = [s.steps for s in report.stretches if s.is_real]
    assert len(set(lengths)) > 1, "stretches of one length could coincide with something periodic"
    again = dsconvert.headspace(Loader(900), lambda _: None, steps=400, warmup=2, ahead=0, predict=False)
    assert [s.steps for s in again.stretches] == [s.steps for s in report.stretches]


def test_a_probe_fits_into_an_existing_loop():
    seen = []
    probe = dsconvert.HeadspaceProbe(Loader(70), steps=40, stretch=10, warmup=3, ahead=1, synchronize=lambda: None)
    for _ in range(4):  # epochs
        for batch in probe:
            seen.append(int(batch["x"][0, 0]))
            batch["x"] = None  # steps may replace what is in a batch
    assert probe.is_done and probe.pairs_done == 2 and probe.steps_done == len(seen)
    assert seen[:3] == [0, 1, 2]
    assert "step time" in repr(probe.report())


def test_with_stop_false_the_epoch_continues_with_real_batches():
    probe = dsconvert.HeadspaceProbe(Loader(90), steps=24, stretch=12, warmup=2, ahead=0, stop=False)
    seen = [int(batch["x"][0, 0]) for batch in probe]
    assert probe.is_done and seen[-1] == 89
    rest = list(probe)
    assert len(rest) == 90


def padded(i):
    width = 16 + i * 37 % 100
    mask = np.zeros((4, width), dtype=np.int64)
    mask[:, :12] = 1
    return {"input_ids": np.ones((4, width), dtype=np.int64), "attention_mask": mask}


def test_cached_stretches_have_the_padded_elements_of_real_ones(clock):
    # A step takes as long as its batch is wide.
    device = VirtualDevice(clock)
    report = dsconvert.headspace(
        Loader(800, batch=padded), lambda batch: device.submit(batch["input_ids"].size * 1e-4), warmup=16, ahead=0,
        synchronize=device.synchronize, predict=False,
    )
    assert report.cached_elements_per_step == pytest.approx(report.elements_per_step, rel=0.002)
    assert abs(report.gain) < 0.005, report
    assert 0.6 < report.padding_share < 0.9
    assert report.padding_ms == pytest.approx(report.padding_share * report.cached_step_ms)
    assert "padding" in repr(report)


def test_elements_of_uncollated_records_and_padding_of_packed_rows_are_counted(text):
    options = {"steps": 8, "stretch": 2, "warmup": 1, "predict": False}
    records = text[:16]
    report = dsconvert.headspace(Loader(40, batch=lambda i: records), lambda batch: None, **options)
    assert report.elements_per_step == sum(record["length"] for record in records)
    loader = dsconvert.Loader(text, seq_len=64, batch_size=4, num_threads=0)
    report = dsconvert.headspace(loader, lambda batch: None, **options)
    assert 0 < report.padding_share < 1


def test_batches_are_chosen_for_a_sum():
    rng = random.Random(5)
    for _ in range(50):
        sizes = [rng.randrange(50, 400) for _ in range(16)]
        real = [rng.choice(sizes) for _ in range(12)]
        found = choose(rng, sizes, 12, sum(real))
        assert len(found) == 12 and abs(sum(sizes[i] for i in found) - sum(real)) <= 0.01 * sum(real)
    assert choose(rng, [], 3, 10) == [] and choose(rng, [1, 2], 0, 10) == []
    assert choose(rng, [7], 3, 1000) == [0, 0, 0]


def test_the_report_has_hours_json_and_a_plot(clock):
    report = measure(clock, 0.01, 0.005, waits=True, total_steps=360_000)
    gained = (report.step_ms - report.cached_step_ms) * 100 / 1e3
    assert report.hours == pytest.approx(gained, rel=1e-6)
    as_json = json.loads(json.dumps(report.to_dict()))
    assert as_json["gain"] == report.gain and as_json["verdict"] == report.verdict and as_json["stretches"][0]["steps"] > 0
    assert re.search(r"^step time .* ms → .* ms, .*%.* hours in 360,000 steps$", repr(report), re.MULTILINE)
    hostile = report.to_svg("<script>&")
    root = ElementTree.fromstring(hostile)
    assert "<script>" not in hostile
    lines = [e for e in root.iter() if "stretch" in e.get("class", "")]
    assert len(lines) == len(report.stretches)


def test_more_workers_are_simulated(clock, monkeypatch):
    torch_data = pytest.importorskip("torch.utils.data")
    # Load times are measured in this process, whose clock the workers do not advance.
    monkeypatch.setattr(batch_loads, "perf_counter", clock)

    class Slow(torch_data.Dataset):
        def __len__(self):
            return 300

        def __getitem__(self, index):
            clock.sleep(0.03)
            return index

    loader = torch_data.DataLoader(Slow(), batch_size=1, num_workers=1)
    device = VirtualDevice(clock)
    report = dsconvert.headspace(
        loader, lambda _: device.submit(0.012), steps=48, stretch=12, warmup=2, synchronize=device.synchronize
    )
    steps = {w.workers: w.step_ms for w in report.workers}
    assert {1, 2, 4} <= set(steps)
    assert [steps[1], steps[2], steps[4]] == pytest.approx([30, 15, 12], rel=0.05), report
    assert report.workers_error is None and "simulated" in repr(report)
    assert report.workers_in_use == 1


def report_of(pairs, predicted=(), in_use=None, planned_pairs=None):
    """A report on pairs of (real, cached) milliseconds per step, with predictions of (workers, milliseconds)."""
    stretches = [
        headspace_report.Stretch(is_real, pair, 20 * pair, 10, 0, ms[not is_real] / 100)
        for pair, ms in enumerate(pairs) for is_real in (False, True)
    ]
    return headspace_report.HeadspaceReport.of(
        stretches, planned_pairs=planned_pairs or len(pairs), total_steps=None, seconds=1, padding_share=None,
        predict=lambda _: [WorkerPrediction(*one) for one in predicted], workers_in_use=in_use,
    )


CLEAR = [(100, 50), (101, 50), (99, 50)]


def test_the_verdict_never_recommends_fewer_workers_than_are_in_use():
    predicted = [(1, 50), (2, 50), (4, 50)]
    assert report_of(CLEAR, predicted, 0).verdict.endswith("; by simulation, 1 worker would remove it")
    for in_use, shown in ((1, "the 1 worker in use is enough"), (2, "the 2 workers in use are enough")):
        verdict = report_of(CLEAR, predicted, in_use).verdict
        assert shown in verdict and "would remove" not in verdict
        assert "transfer of batches" in verdict and "compete with the step for cores" in verdict
    # No number of workers is enough: the cores are.
    few = [(1, 100), (2, 80), (4, 80)]
    assert "more workers help up to 2, with 80 ms per step: make loading" in report_of(CLEAR, few, 1).verdict
    assert "more workers do not help: make loading" in report_of(CLEAR, few, 2).verdict


def test_a_wide_interval_is_unclear_and_clipped():
    # The gain is 81.7%, with an interval from about 3 to 160%.
    wide = report_of([(200, 20), (140, 40)], [(1, 20)], 2)
    assert wide.gain_interval[1] > 1
    assert "to 100.0%)" in repr(wide) and "by simulation" not in wide.verdict
    assert re.fullmatch(
        r"unclear: loading costs between \S+ and 100.0% of the training time; measure longer, for example with "
        r"steps=400, or on an otherwise idle machine", wide.verdict,
    )
    # A wide interval far from 0 is clear.
    assert report_of([(100, 30), (100, 10), (100, 20)]).verdict == "loading costs 80.0% of the training time"
    # Nothing is in the interval.
    none = report_of([(100, 50), (100, 100), (100, 90)])
    assert "(95% interval 0.0 to " in repr(none) and "between nothing and " in none.verdict
    assert report_of(CLEAR).verdict == "loading costs 50.0% of the training time"


def test_one_pair_is_unclear():
    one = report_of([(100, 50)], [(4, 50)], 1)
    assert one.verdict == (
        "unclear: only one pair of stretches was measured, in which loading costs 50.0%; measure longer, for example with "
        "steps=400"
    )
    early = report_of([(100, 50)], planned_pairs=10)
    assert early.verdict.endswith("; continue the loop until all 10 pairs are measured")


def test_loads_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    # A load that keeps one core busy is often measured as slightly more than one.
    assert [cores_of(share) for share in (0.3, 0.6, 0.98, 1.02, 1.9, 8)] == [None, 3, 2, 2, 1, 1]


def test_a_dataset_that_fails_outside_workers_is_reported():
    torch_data = pytest.importorskip("torch.utils.data")

    class OnlyInWorkers(torch_data.Dataset):
        def __len__(self):
            return 300

        def __getitem__(self, index):
            if torch_data.get_worker_info() is None:
                raise RuntimeError("no handle")
            return index

    loader = torch_data.DataLoader(OnlyInWorkers(), batch_size=1, num_workers=1)
    report = dsconvert.headspace(loader, lambda _: None, steps=8, stretch=4, warmup=2)
    assert report.workers == () and report.workers_error == "RuntimeError: no handle"
    assert "not possible: RuntimeError: no handle" in repr(report)


def test_the_snippets_of_the_reference_run(tmp_path, monkeypatch):
    torch_data = pytest.importorskip("torch.utils.data")
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs/reference/headspace.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 3
    loader = torch_data.DataLoader([{"x": i} for i in range(4000)], batch_size=4)
    names = {"loader": loader, "step": lambda batch: time.sleep(0.0005)}
    for snippet in snippets:
        exec(snippet, names)
    assert names["report"].batches > 0 and "<svg" in (tmp_path / "workers.svg").read_text()


def test_the_experiment_prints_its_tables(binary):
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, ROOT / "benches/python/loading_experiment.py", "--parts", "simulate", "--only", "converted",
         "--batches", "12", "--repeats", "1"],
        env={**os.environ, "DSCONVERT_BIN": str(binary)}, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| converted ")]
    # Two step times, each with 0 to 4 workers.
    assert [int(row.split("|")[5]) for row in rows] == [0, 1, 2, 3, 4] * 2
    assert re.search(r"^\d of 6 predictions hold", done.stdout, re.MULTILINE)


def test_an_error_of_the_loader_names_its_origin():
    class Breaks(Loader):
        def __iter__(self):
            for i, batch in enumerate(super().__iter__()):
                if i == 20:
                    raise OSError("no such disk")
                yield batch

    with pytest.raises(OSError, match="no such disk") as caught:
        dsconvert.headspace(Breaks(100), lambda _: None, stretch=10, ahead=0)
    assert caught.value.__notes__ == ["raised by the loader, after 20 batches of the epoch"]


def test_an_error_of_the_step_names_its_origin():
    def step(batch):
        if batch["x"][0, 0] == 6:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as caught:
        dsconvert.headspace(Loader(100), step, ahead=0)
    assert caught.value.__notes__ == ["raised by step, in step 7 of headspace"]


@pytest.mark.parametrize("loader", [Loader(0), [], iter(())])
def test_an_empty_loader_is_refused(loader):
    with pytest.raises(dsconvert.UsageError, match="the loader returned no batch"):
        dsconvert.headspace(loader, lambda _: None)
    with pytest.raises(dsconvert.UsageError, match="was not iterated"):
        dsconvert.HeadspaceProbe(loader).report()


@pytest.mark.parametrize("make", [lambda: Loader(30), lambda: (batch for batch in Loader(30))])
def test_too_few_batches_for_one_pair_are_refused(make):
    with pytest.raises(dsconvert.UsageError, match=r"one pair needs \d+ batches in one epoch") as caught:
        dsconvert.headspace(make(), lambda _: None, stretch=40, ahead=0)
    assert "smaller stretch" in caught.value.remedy


def test_a_loader_that_ends_early_gives_the_pairs_that_are_complete():
    report = dsconvert.headspace((b for b in Loader(90)), lambda _: None, steps=400, stretch=20, warmup=2, ahead=0)
    assert 0 < report.pairs < report.planned_pairs == 10
    assert f"{report.pairs} of 10 pairs" in repr(report)


def test_short_epochs_get_shorter_stretches():
    report = dsconvert.headspace(Loader(30), lambda _: None, steps=40, warmup=2, ahead=0, predict=False)
    assert report.pairs == report.planned_pairs and max(s.steps for s in report.stretches) < 20


@pytest.mark.parametrize(("length", "needed"), [(59, None), (58, 49)])
def test_an_epoch_with_just_enough_batches_for_a_pair_is_measured(length, needed):
    # A warm-up of 10, 10 batches that settle the loader, 8 that were ready, 10 more that settle it, 20 and 1.
    def measure():
        return dsconvert.headspace(
            Loader(length), lambda _: None, steps=40, stretch=20, ahead=8, predict=False, synchronize=lambda: None
        )

    if needed is None:
        assert measure().pairs == 1
    else:
        with pytest.raises(dsconvert.UsageError, match=f"one pair needs {needed} batches .* took 10 of {length}"):
            measure()


def test_the_default_stretch_fits_into_a_short_epoch_with_workers():
    report = dsconvert.headspace(Loader(60), lambda _: None, ahead=8, predict=False, synchronize=lambda: None)
    assert report.pairs >= 1


@pytest.mark.parametrize("options", [
    {"steps": 1}, {"stretch": 1}, {"warmup": 0}, {"ahead": -1}, {"num_caches": 0}, {"total_steps": 0},
    {"steps": 30, "stretch": 20},
])
def test_invalid_options_are_refused(options):
    with pytest.raises(dsconvert.UsageError):
        dsconvert.HeadspaceProbe(Loader(10), **options)


def test_the_gain_is_measured_on_cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    weights = torch.randn(4096, 4096, device="cuda")

    def step(batch):
        x = batch["x"].cuda(non_blocking=True)
        for _ in range(20):
            x = x @ weights
        return x

    loader = Loader(400, lambda: time.sleep(0.05), batch=lambda i: {"x": torch.full((512, 4096), float(i))})
    report = dsconvert.headspace(loader, step, steps=48, stretch=12, ahead=0, predict=False)
    assert report.gain > 0.2 and report.step_ms > 50


def test_ranks_switch_together(tmp_path):
    pytest.importorskip("torch.distributed")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         ROOT / "tests/python/headspace_ranks.py", tmp_path],
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["kinds"] == ranks[1]["kinds"] and len(set(ranks[0]["kinds"])) == 2
    for rank in ranks:
        # Only the loader of rank 0 is slow, and both wait for it: a third of the time. The clock of rank 1 is behind that of
        # rank 0 when a cached stretch starts.
        assert rank["gain"] == pytest.approx(1 / 3, abs=0.05), ranks
