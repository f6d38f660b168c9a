"""`dsconvert simulate` against real PyTorch DataLoaders, in virtual time."""

import json
import multiprocessing
import random

import pytest

torch_data = pytest.importorskip("torch.utils.data")

WORKERS = 3
PREFETCH = 2
BATCHES = 90


class HeldDataset(torch_data.Dataset):
    """A dataset whose loads end when they are released."""

    def __init__(self, length):
        self.released = [multiprocessing.Semaphore(0) for _ in range(length)]

    def __len__(self):
        return len(self.released)

    def __getitem__(self, index):
        self.released[index].acquire()
        return index


def measure(load_ms, step_ms, in_order):
    """Returns the milliseconds from the first batch to the end of the last step, and the batches in the order of delivery.

    The `DataLoader` decides which worker gets which batch, and when. This function keeps the time of each worker, and
    releases the load that ends next or, if batches come in order, that of the batch that the loader waits for.
    """
    dataset = HeldDataset(len(load_ms))
    batches = iter(torch_data.DataLoader(
        dataset, batch_size=None, num_workers=WORKERS, prefetch_factor=PREFETCH, in_order=in_order,
    ))  # fmt: skip
    now, free, ends, delivered = 0.0, [0.0] * WORKERS, {}, []

    def note_assigned():
        for batch, (worker, *_) in sorted(batches._task_info.items()):
            if batch not in ends:
                ends[batch] = free[worker] = max(free[worker], now) + load_ms[batch]

    note_assigned()
    first = min(ends.values()) if not in_order else ends[0]
    while len(delivered) < len(load_ms):
        waiting = sorted(set(ends) - set(delivered))
        released = waiting[0] if in_order else min(waiting, key=ends.get)
        dataset.released[released].release()
        delivered.append(int(next(batches)))
        assert delivered[-1] == released
        now = max(now, ends[released])
        note_assigned()  # the batch that replaces the delivered one
        now += step_ms
    assert next(batches, None) is None
    return now - first, delivered


# Workers that wait need no core.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("order", ["pytorch", "completed"])
@pytest.mark.parametrize("cv", [0, 0.5, 1])
def test_a_data_loader_takes_as_long_as_simulated(dsconvert, tmp_path, order, cv):
    rng = random.Random(17)
    mean_ms = 45
    load_ms = [rng.gammavariate(1 / cv**2, mean_ms * cv**2) if cv else mean_ms for _ in range(BATCHES)]
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
        ms, delivered = measure(load_ms, step_ms, order == "pytorch")
        assert sorted(delivered) == list(range(BATCHES)) and (order == "completed" or delivered == sorted(delivered))
        assert simulated["seconds"] * 1e3 - simulated["first_batch_ms"] == pytest.approx(ms, rel=1e-6), f"step {step_ms} ms"
