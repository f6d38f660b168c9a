"""`dsconvert simulate` against real PyTorch DataLoaders, whose datasets sleep for the times of a trace."""

import json
import random
import statistics
import time

import pytest

torch_data = pytest.importorskip("torch.utils.data")

pytestmark = pytest.mark.alone

WORKERS = 3
PREFETCH = 2
BATCHES = 90
# Mean time by which a sleep is too long on a machine that is busy with other programs. It is below 0.2 ms on an idle one.
BUSY_SECONDS = 0.5e-3


class SleepingDataset(torch_data.Dataset):
    def __init__(self, load_ms):
        self.load_ms = load_ms

    def __len__(self):
        return len(self.load_ms)

    def __getitem__(self, index):
        return index, oversleep(self.load_ms[index] / 1e3)


def oversleep(seconds):
    """Sleeps, and returns the seconds by which this took too long."""
    start = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - start - seconds


def measure(load_ms, step_ms, in_order):
    """Seconds from the first batch to the end of the last step, the batches in the order of delivery, and the mean
    seconds by which sleeps took too long."""
    loader = torch_data.DataLoader(
        SleepingDataset(load_ms), batch_size=None, num_workers=WORKERS, prefetch_factor=PREFETCH, in_order=in_order,
    )
    delivered, first, late = [], None, []
    for index, load_late in loader:
        first = first or time.perf_counter()
        delivered.append(int(index))
        late += [float(load_late), oversleep(step_ms / 1e3)]
    return time.perf_counter() - first, delivered, statistics.mean(late)


# Workers that sleep need no core.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("order", ["pytorch", "completed"])
@pytest.mark.parametrize("cv", [0, 0.5, 1])
def test_a_data_loader_takes_as_long_as_simulated(dsconvert, tmp_path, order, cv):
    rng = random.Random(17)
    mean_ms = 45
    load_ms = [rng.gammavariate(1 / cv**2, mean_ms * cv**2) if cv else mean_ms for _ in range(BATCHES)]
    # No load time is below the overhead of PyTorch for each batch.
    load_ms = [round(max(2, ms), 3) for ms in load_ms]
    trace = tmp_path / "loads.txt"
    trace.write_text("".join(f"{ms}\n" for ms in load_ms))
    # The loader is the bottleneck, then both are balanced, then the model is the bottleneck.
    for step_ms in [5, 15, 25]:
        done = dsconvert(
            "simulate", "--load-trace", trace, "--step-ms", step_ms, "--workers", WORKERS, "--prefetch", PREFETCH,
            "--order", order, "--batches", BATCHES, "--json",
        )
        simulated = json.loads(done.stdout)
        expected = simulated["seconds"] - simulated["first_batch_ms"] / 1e3
        # A busy machine only makes the real loader slower.
        fastest, least_late = None, None
        for _ in range(4):
            seconds, delivered, late = measure(load_ms, step_ms, order == "pytorch")
            assert sorted(delivered) == list(range(BATCHES))
            if order == "pytorch":
                assert delivered == list(range(BATCHES))
            fastest, least_late = min(seconds, fastest or seconds), min(late, least_late or late)
            if fastest <= expected * 1.08:
                break
        if fastest > expected * 1.12 and least_late > BUSY_SECONDS:
            pytest.skip(f"other programs use the machine: sleeps take {least_late * 1e3:.1f} ms too long")
        assert expected * 0.97 <= fastest <= expected * 1.12, f"step {step_ms} ms: {fastest} s, simulated {expected} s"
