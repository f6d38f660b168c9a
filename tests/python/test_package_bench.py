"""The Python package: `bench` times datasets and loaders of any kind, and `simulate` is the command as a function."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import dsconvert
from dsconvert.lab import batch_loads, bench_report, benchmark
from dsconvert.lab.batch_contents import contents_of, elements_of
from fake_device import VirtualTime

QUICK = {"seconds": 0.3, "repeat": 2, "warmup": 1}


def test_the_names_of_the_lab_are_also_those_of_the_package():
    for name in dsconvert.lab.__all__:
        assert getattr(dsconvert, name) is getattr(dsconvert.lab, name)
        assert name in dsconvert.__all__


@pytest.fixture
def clock(monkeypatch):
    """A virtual clock in place of `perf_counter`."""
    clock = VirtualTime()
    monkeypatch.setattr(benchmark, "perf_counter", clock)
    monkeypatch.setattr(batch_loads, "perf_counter", clock)
    return clock


class Slow:
    """A map-style dataset whose items take a while."""

    def __init__(self, length=60, item_s=0.004, sleep=time.sleep):
        self.length, self.item_s, self.sleep = length, item_s, sleep

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.sleep(self.item_s)
        return np.full(10, index, dtype=np.float64)


class SlowBatches(Slow):
    """The same, with `__getitems__`."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


@pytest.mark.parametrize(("x", "shown"), [
    (52.731, "52.73"), (999.94, "999.9"), (999.96, "1,000"), (12_345.6, "12,346"), (5.267e4, "52,670"),
    (2.5e9, "2,500,000,000"), (0.5, "0.5"), (0, "0"),
])
def test_numbers_have_separators_instead_of_exponents(x, shown):
    assert bench_report.number(x) == shown


def test_no_rate_or_time_has_an_exponent():
    report = dsconvert.bench(list(range(50_000)), items=20_000, repeat=1)
    rates = {
        "items_per_second": 1.3e4, "batches_per_second": 5.267e4, "bytes_per_second": 4.2e10, "tokens_per_second": 9e6
    }
    text = repr(dataclasses.replace(report, **rates))
    assert "13,000 items/s, 52,670 batches/s, 42,000 MB/s, 9,000,000 tokens/s" in text and "e+" not in text
    for ms in (0.0001, 0.5, 999.7, 9999, 12_000, 2_000_000):
        assert "e+" not in bench_report.duration(ms), ms


def test_items_of_a_map_style_dataset_are_timed():
    report = dsconvert.bench(Slow(), items=20, repeat=2)
    assert report.items == 40 and report.batches is None and report.batch is None and report.load is None
    assert report.item.count == 40 and report.item.p99_ms >= report.item.p50_ms >= 4
    # 80 bytes each.
    assert report.bytes_per_second == pytest.approx(80 * report.items_per_second)
    assert report.items_per_second < 250 and report.spread is not None


@pytest.mark.parametrize("kind", [Slow, SlowBatches])
def test_getitem_and_collate_of_a_map_style_dataset_are_timed(clock, kind):
    def collate(items):
        clock.sleep(0.002 * len(items))
        return np.stack(items)

    report = dsconvert.bench(kind(sleep=clock.sleep), batch_size=5, collate_fn=collate, **QUICK)
    # Each batch takes 20 ms in `__getitem__` and 10 ms in `collate`.
    assert report.load.collate_share == pytest.approx(1 / 3)
    assert report.load.getitem_share == pytest.approx(2 / 3)
    assert report.batch.p50_ms == pytest.approx(30) and report.load.batch.p99_ms == pytest.approx(30)
    assert report.item.p50_ms == pytest.approx(4) and report.spread == pytest.approx(0)
    assert report.batches_per_second == pytest.approx(1000 / 30) and report.items_per_second == pytest.approx(5000 / 30)
    # Two runs of 300 ms, which are 10 batches each.
    assert report.batches == 20 and not report.ended_early


def test_a_data_loader_is_measured_from_outside_and_inside(tmp_path):
    torch_data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    loader = torch_data.DataLoader(Slow(120, 0.006), batch_size=4, num_workers=2, shuffle=True)
    threads = torch.get_num_threads()
    trace = tmp_path / "loads.txt"
    report = dsconvert.bench(loader, seconds=0.5, repeat=1, trace=trace)
    assert "2 workers, batch size 4" in report.source and report.load.getitem_share > 0.5
    assert report.batches > 0 and report.items == 4 * report.batches and report.load.batch.p50_ms >= 24
    # A trace that the simulator reads.
    loads = [float(line) for line in trace.read_text().splitlines()[1:]]
    assert sum(loads) / len(loads) == pytest.approx(report.load.batch.mean_ms)
    simulated = dsconvert.simulate(load_trace=trace, step_ms=0.001, workers=1, batches=len(loads))
    assert simulated["seconds"] * 1e3 == pytest.approx(sum(loads), rel=0.01)
    assert torch.get_num_threads() == threads


def test_iterable_datasets_and_generators_are_timed(clock):
    torch_data = pytest.importorskip("torch.utils.data")

    class Lines(torch_data.IterableDataset):
        def __iter__(self):
            for i in range(40):
                clock.sleep(0.002)
                yield f"line {i}"

    report = dsconvert.bench(Lines(), seconds=30, repeat=2, warmup=0)
    assert report.items == 80 and report.ended_early and report.batches is None
    assert report.items_per_second == pytest.approx(500)
    report = dsconvert.bench(torch_data.DataLoader(Lines(), batch_size=8), seconds=30, repeat=1, warmup=1)
    assert report.batches == 4 and report.items == 32 and report.load.batch.count == 4
    assert report.load.getitem_share == pytest.approx(1) and report.load.batch.p50_ms == pytest.approx(16)
    # A generator can be measured once.
    report = dsconvert.bench((i for i in range(30)), warmup=5)
    assert report.items == 25 and report.repeats == 1 and report.spread is None
    assert dsconvert.bench(([i] * 3 for i in range(30)), warmup=0, unit="batch").items == 90


def test_splits_and_loaders_of_dsconvert_are_timed(corpus_in, tmp_path):
    path = corpus_in("arrow").path
    split = dsconvert.open(path, "train")
    assert dsconvert.bench(split, **QUICK).item.count > 10
    assert dsconvert.bench(str(path), items=20, repeat=1).items == 20
    loader = dsconvert.Loader(split, batch_size=4, num_threads=1, seed=3)
    at = loader.state_dict()
    trace = tmp_path / "trace.txt"
    report = dsconvert.bench(loader, seconds=20, repeat=1, warmup=0, trace=trace)
    assert loader.state_dict() == at, "a copy was measured"
    totals = [loader.totals() for _ in loader]
    lengths = split.lengths()
    assert report.batches == len(loader) and report.items == len(lengths)
    tokens = report.tokens_per_second * report.seconds
    assert tokens == pytest.approx(int(lengths.sum()), rel=1e-6)
    # The padding of random batches of four is about the same in every epoch.
    padding = 1 - sum(t.tokens for t in totals) / sum(t.padded_tokens for t in totals)
    assert report.padding_share == pytest.approx(padding, abs=0.1) and padding > 0.05
    assert len(trace.read_text().splitlines()) == 1 + len(loader)
    assert report.load.collate_share is None


def test_the_report_is_a_readable_table():
    report = dsconvert.bench(Slow(), batch_size=5, collate_fn=np.stack, **QUICK)
    output = repr(report)
    assert re.search(r"^throughput +[\d.,]+ items/s, [\d.,]+ batches/s, .* MB/s$", output, re.MULTILINE), output
    assert re.search(r"^item +p50 [\d.]+ ms, p99 [\d.]+ ms$", output, re.MULTILINE), output
    assert "__getitem__ " in output and "collate " in output and "Slow, batch size 5" in output
    as_json = json.loads(json.dumps(report.to_dict()))
    assert as_json["item"]["p50_ms"] == report.item.p50_ms and as_json["load"]["cpu_share"] == report.load.cpu_share


def test_rows_bytes_and_tokens_of_batches_are_counted():
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0]])
    padded = {"input_ids": np.ones((2, 4)), "attention_mask": mask}
    assert contents_of(padded)[:1] + contents_of(padded)[2:] == (2, 8, 5, 3)
    lengths = {"input_ids": np.ones((2, 4)), "lengths": np.array([2, 4])}
    assert contents_of((lengths, np.zeros(2)))[2:] == (8, 6, 2)
    additive = {"input_ids": np.ones((2, 4)), "attention_mask": np.where(mask, 0.0, -1e9)}
    assert contents_of(additive)[2:] == (8, None, None)
    flat = {"input_ids": np.ones(9), "cu_seqlens": np.array([0, 4, 9])}
    assert contents_of(flat)[:1] + contents_of(flat)[2:] == (2, 9, 9, None)
    images = [np.zeros((5, 3, 2, 2), np.uint8), np.zeros(5, np.int64)]
    assert contents_of(images) == (5, 60 + 40, 60, None, None)
    assert contents_of([{"text": "é"}, {"text": "ab"}, {}]) == (3, 4, 0, None, None)
    assert contents_of({"image": [b"abc", b"de"], "label": np.zeros(2)}).rows == 2
    assert contents_of(7) == (1, 0, 0, None, None)


def test_batches_of_uncollated_items_are_counted_item_by_item():
    records = [{"input_ids": np.ones(n), "length": n} for n in (3, 5, 2)]
    assert contents_of(records) == contents_of(tuple(records)) == (3, 80, 10, 10, None)
    masked = [{"input_ids": np.ones(4), "attention_mask": np.array([1, 1, 0, 0])}] * 3
    assert contents_of(masked)[2:] == (12, 6, 6) and elements_of(masked) == 12
    # Pairs of an image and its label.
    assert contents_of([(np.zeros((3, 4, 4)), 1)] * 5)[:3] == (5, 5 * 48 * 8, 5 * 48)
    # Mappings with different names are the inputs and the targets.
    inputs, targets = {"image": np.zeros((5, 12))}, {"label": np.zeros(5)}
    assert contents_of((inputs, targets))[:3] == (5, 65 * 8, 60) and elements_of((inputs, targets)) == 60


def test_rows_of_columns_that_are_lists_of_arrays_are_counted():
    images, targets = (np.zeros((3, 4, 4)), np.zeros((3, 8, 4))), ({"boxes": np.zeros((2, 4))},) * 2
    assert contents_of((images, targets))[:1] + contents_of((images, targets))[2:3] == (2, 48 + 96)
    assert contents_of(([*images], [*targets])).rows == contents_of({"image": [*images], "n": 1}).rows == 2
    ragged = {"input_ids": [np.ones(3), np.ones(5)]}
    assert contents_of(ragged)[:1] + contents_of(ragged)[2:] == (2, 8, 8, None) and elements_of(ragged) == 8
    masks = [np.array([1, 1, 0]), np.array([1, 1, 1, 1, 1])]
    assert contents_of({**ragged, "attention_mask": masks})[2:] == (8, 7, 1)


def test_padding_of_packed_rows_is_unknown_without_a_mask_or_lengths():
    packed = {"input_ids": np.ones((2, 8)), "cu_seqlens": np.array([0, 5, 8, 14])}
    assert contents_of(packed)[:1] + contents_of(packed)[2:] == (2, 16, None, None)
    assert contents_of({**packed, "attention_mask": np.ones((2, 8))})[2:] == (16, 16, 0)


def totals(report):
    """Items and tokens of a report."""
    return report.items, round(report.tokens_per_second * report.seconds)


def test_tokens_of_uncollated_batches_are_those_of_their_records(text):
    torch_data = pytest.importorskip("torch.utils.data")
    whole = {"seconds": 60, "repeat": 1, "warmup": 0}
    expected = len(text), int(text.lengths().sum())
    assert totals(dsconvert.bench(text, **whole)) == expected
    assert totals(dsconvert.bench(text, batch_size=32, **whole)) == expected
    assert totals(dsconvert.bench(torch_data.DataLoader(text, batch_size=32, collate_fn=list), **whole)) == expected
    arrays = [np.zeros(10)] * 20
    assert dsconvert.bench(arrays, batch_size=5, **whole).items == 20
    assert dsconvert.bench(arrays, batch_size=5, collate_fn=lambda items: sum(items), **whole).items == 20


@pytest.mark.parametrize("options", [
    {"max_tokens_unpadded": 8000, "oversize": "truncate", "fields": ["input_ids", "labels", "position_ids"]},
    {"batch_size": 32, "transform": lambda record: {"input_ids": record["input_ids"]}},
    {"batch_size": 32, "batch_transform": lambda batch: {"input_ids": batch["input_ids"]}},
    {"batch_size": 32, "fields": ["key"]},
    {"batch_size": 32, "last": "pad", "rank": 0, "world_size": 1},
], ids=["flat", "ragged", "no mask", "keys", "filler rows"])
def test_rows_and_tokens_of_a_loader_are_those_that_it_reports(text, options):
    loader = dsconvert.Loader(text, num_threads=0, **options)
    report = dsconvert.bench(loader, seconds=60, repeat=1, warmup=0)
    tokens = sum(loader.last.tokens for _ in loader)
    assert report.items == len(text)
    if options.get("fields") == ["key"]:
        assert report.tokens_per_second is None
    else:
        assert totals(report)[1] == tokens


def test_padding_of_packed_rows_of_a_loader_is_counted(text):
    loader = dsconvert.Loader(text, seq_len=512, batch_size=8, num_threads=0, seed=2)
    report = dsconvert.bench(loader, seconds=60, repeat=1, warmup=0)
    tokens, elements, rows = np.sum([(loader.last.tokens, b["input_ids"].size, len(b["input_ids"])) for b in loader], 0)
    assert 0 < tokens < elements
    assert totals(report) == (rows, tokens) and report.padding_share == pytest.approx(1 - tokens / elements)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "int8", "float32"])
def test_masks_of_any_type_are_counted(dtype):
    torch = pytest.importorskip("torch")
    mask = torch.ones(64, 2048, dtype=getattr(torch, dtype))
    mask[0, :3] = 0
    batch = {"input_ids": torch.zeros(64, 2048, dtype=torch.int64), "attention_mask": mask}
    assert contents_of(batch)[2:] == (64 * 2048, 64 * 2048 - 3, 3)
    if dtype != "bfloat16":
        assert contents_of({name: array.numpy() for name, array in batch.items()})[3:] == (64 * 2048 - 3, 3)
    additive = torch.where(mask != 0, 0.0, torch.finfo(torch.float16).min).to(torch.float16)
    assert contents_of({**batch, "attention_mask": additive})[3:] == (None, None)


@pytest.mark.parametrize(("source", "message"), [
    ([], "nothing to measure"),
    (iter(()), "nothing to measure"),
    ([1, 2], "ended within the warm-up of 2 items"),
    (3, "neither __getitem__ nor __iter__"),
])
def test_sources_without_anything_to_measure_are_refused(source, message):
    with pytest.raises(dsconvert.UsageError, match=message):
        dsconvert.bench(source)


@pytest.mark.parametrize("options", [
    {"seconds": 0}, {"seconds": -1}, {"seconds": float("nan")}, {"items": 0}, {"warmup": -1}, {"repeat": 0},
    {"batch_size": 0}, {"collate_fn": list}, {"unit": "rows"}, {"trace": "loads.txt"},
])
def test_invalid_options_are_refused(options):
    with pytest.raises(dsconvert.UsageError):
        dsconvert.bench(Slow(), **options)


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"collate_fn": list}, {"shuffle": False}, {"seed": 0}])
def test_options_of_a_map_style_dataset_are_refused_for_loaders(text, options):
    torch_data = pytest.importorskip("torch.utils.data")
    sources = iter([1, 2, 3]), torch_data.DataLoader(text, collate_fn=list), dsconvert.Loader(text, batch_size=4)
    for source in sources:
        with pytest.raises(dsconvert.UsageError, match=f"^{next(iter(options))} does not apply"):
            dsconvert.bench(source, **options)


@pytest.mark.parametrize("unit", ["item", "batch"])
def test_a_unit_is_refused_where_it_is_known(text, unit):
    for source in ([1, 2, 3], text, text.path, dsconvert.Loader(text, batch_size=4)):
        with pytest.raises(dsconvert.UsageError, match="^unit does not apply"):
            dsconvert.bench(source, unit=unit)


def test_the_trace_is_opened_before_the_measurement(tmp_path):
    measured = []

    class Batches:
        batch_size = 2

        def __iter__(self):
            measured.append(1)
            yield from ([1, 2] for _ in range(5))
            raise OSError("gone")

    with pytest.raises(dsconvert.UsageError, match="no such folder"):
        dsconvert.bench(Batches(), trace=tmp_path / "missing/loads.txt")
    assert not measured
    # A failed measurement leaves no new file, and an existing one as it was.
    kept = tmp_path / "kept.txt"
    kept.write_text("# milliseconds to load each batch\n" + "1.5\n" * 1000)
    for trace in (tmp_path / "loads.txt", kept):
        with pytest.raises(OSError, match="gone"):
            dsconvert.bench(Batches(), trace=trace)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
    assert kept.read_text().count("1.5\n") == 1000
    dsconvert.bench(Slow(), batch_size=5, **QUICK, trace=kept)
    assert kept.read_text().startswith("# milliseconds") and "1.5\n" * 2 not in kept.read_text()


def test_a_trace_replaces_no_other_file(text, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a"}\n')
    manifest = os.path.join(text.path, "manifest.json")
    for trace, message in ((corpus, "not a trace of load times"), (manifest, "inside this dataset")):
        with open(trace, "rb") as file:
            before = file.read()
        with pytest.raises(dsconvert.UsageError, match=message):
            dsconvert.bench(text, batch_size=2, **QUICK, trace=trace)
        with open(trace, "rb") as file:
            assert file.read() == before


def test_errors_of_the_dataset_name_where_they_were_raised():
    class Broken(Slow):
        def __getitem__(self, index):
            if index == 7:
                raise ValueError("bad JPEG")
            return index

    with pytest.raises(ValueError, match="bad JPEG") as caught:
        dsconvert.bench(Broken(), shuffle=False)
    assert caught.value.__notes__ == ["raised by Broken.__getitem__(7)"]

    def collate(items):
        raise TypeError("shapes differ")

    with pytest.raises(TypeError) as caught:
        dsconvert.bench(Slow(), batch_size=2, collate_fn=collate)
    assert caught.value.__notes__ == ["raised by collate_fn"]

    def batches():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError) as caught:
        dsconvert.bench(batches())
    assert caught.value.__notes__ == ["raised by the loader, in call 2 of next()"]


def test_simulate_returns_the_result_of_the_command(tmp_path):
    found = dsconvert.simulate(load_ms=2000, step_ms=100, workers=7)
    assert found["batches"] == 98 and found["verdict"] == "loading"
    swept = dsconvert.simulate(load_ms=400, load_cv=0.5, step_ms=100, seed=2**63, sweep="workers=1..3", stagger=20)
    assert [point["value"] for point in swept["points"]] == [1, 2, 3]
    assert dsconvert.simulate(load_ms=300, step_ms=100, workers=3, stagger=True)["batches"] > 0
    shortest_and_longest = {"step_ms": 1, "workers": 1, "batches": 2}
    assert dsconvert.simulate(load_trace=[1e-6, 3_600_000], **shortest_and_longest)["batches"] == 2
    traced = dsconvert.simulate(load_trace=np.array([100.0, 300.0]), step_ms=1, workers=1, batches=10)
    assert traced["seconds"] == pytest.approx(2.0, rel=0.01)
    picture = tmp_path / "run.svg"
    dsconvert.simulate(load_ms=20, step_ms=10, workers=2, batches=5, svg=picture)
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(("options", "message"), [
    ({"load_ms": 1, "step_ms": 1}, "--workers"),
    ({"load_ms": -1, "step_ms": 1, "workers": 1}, "--load-ms"),
    ({"load_ms": "2 s", "step_ms": 1, "workers": 1}, "not a number"),
    ({"load_ms": 1, "step_ms": 1, "workers": 10**6}, "workers"),
    ({"load_trace": [], "step_ms": 1, "workers": 1}, "^load_trace has no load time$"),
    ({"load_trace": ["1", "x"], "step_ms": 1, "workers": 1}, r"^load_trace\[1\]: 'x' is not a number$"),
    (
        {"load_trace": [1, 0], "step_ms": 1, "workers": 1},
        r"^load_trace\[1\] is 0.0: it must be from 0.000001 to 3600000 mill",
    ),
    ({"load_trace": [1, -2.5], "step_ms": 1, "workers": 1}, r"^load_trace\[1\] is -2.5: it must"),
    ({"load_trace": [float("nan")], "step_ms": 1, "workers": 1}, r"^load_trace\[0\] is nan: it must"),
    ({"load_trace": np.array([3.7e6]), "step_ms": 1, "workers": 1}, r"^load_trace\[0\] is 3700000.0: it must"),
    ({"load_trace": 5, "step_ms": 1, "workers": 1}, "^load_trace is int, not a file or a sequence"),
    ({"load_trace": "missing.txt", "step_ms": 1, "workers": 1}, "cannot read"),
    ({"step_ms": 1, "workers": 1}, "--load-ms"),
    ({"load_ms": 10, "step_ms": 5, "workers": True}, "^workers: True is not a number"),
    ({"load_ms": 10, "step_ms": 5, "workers": 2, "sweep": "workers=1,2"}, "--workers has no effect"),
])
def test_invalid_simulations_are_refused(options, message):
    with pytest.raises(dsconvert.UsageError, match=message):
        dsconvert.simulate(**options)


def test_a_sweep_can_be_interrupted():
    program = """
        import signal, sys, threading
        import dsconvert
        from dsconvert.lab import simulation

        signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background, it is ignored
        sys.setswitchinterval(60)  # the other thread runs when this one has started to simulate
        has_started, run = threading.Event(), simulation._simulate
        simulation._simulate = lambda arguments: (has_started.set(), run(arguments))[1]

        def interrupt():
            has_started.wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        sweep = ",".join(["40"] * 64)
        try:
            dsconvert.simulate(load_ms=50, load_cv=1, step_ms=1, batches=200_000, sweep=f"workers={sweep}")
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "interrupted\n"
