"""`dsconvert simulate` against real PyTorch DataLoaders, whose datasets sleep for the times of a trace."""

import json
import random
import time

import pytest

torch_data = pytest.importorskip("torch.utils.data")

pytestmark = pytest.mark.alone

WORKERS = 3
PREFETCH = 2
BATCHES = 90


class SleepingDataset(torch_data.Dataset):
    def __init__(self, load_ms):
        self.load_ms = load_ms

    def __len__(self):
        return len(self.load_ms)

    def __getitem__(self, index):
        time.sleep(self.load_ms[index] / 1e3)
        return index


def measure(load_ms, step_ms, in_order):
    """Seconds from the first batch to the end of the last step, and the batches in the order of delivery."""
    loader = torch_data.DataLoader(
        SleepingDataset(load_ms), batch_size=None, num_workers=WORKERS, prefetch_factor=PREFETCH, in_order=in_order,
    )
    delivered, first = [], None
    for batch in loader:
        first = first or time.perf_counter()
        delivered.append(int(batch))
        time.sleep(step_ms / 1e3)
    return time.perf_counter() - first, delivered


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
        fastest = None
        for _ in range(4):
            seconds, delivered = measure(load_ms, step_ms, order == "pytorch")
            assert sorted(delivered) == list(range(BATCHES))
            if order == "pytorch":
                assert delivered == list(range(BATCHES))
            fastest = min(seconds, fastest or seconds)
            if fastest <= expected * 1.08:
                break
        assert expected * 0.97 <= fastest <= expected * 1.12, f"step {step_ms} ms: {fastest} s, simulated {expected} s"
