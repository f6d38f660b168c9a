"""One rank of the DDP training in test_package_headspace.py, in which only rank 0 loads slowly, in virtual time."""

import json
import os
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import dsconvert
from dsconvert.lab import headspace_probe
from fake_device import VirtualTime

LOAD_S = 0.02
STEP_S = 0.04

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = headspace_probe.perf_counter = VirtualTime()


def meet():
    """Waits for the other rank, as the sum of the gradients does."""
    now = torch.tensor(clock.now, dtype=torch.float64)
    distributed.all_reduce(now, distributed.ReduceOp.MAX)
    clock.now = now.item()


class Loader:
    def __len__(self):
        return 200 + 50 * rank  # the shorter one decides

    def __iter__(self):
        for i in range(len(self)):
            if rank == 0:
                clock.sleep(LOAD_S)
            yield {"x": torch.randn(8, 4), "real": i}


# The options differ on each rank; all ranks follow the schedule of rank 0.
probe = dsconvert.HeadspaceProbe(Loader(), steps=60, stretch=10 + 2 * rank, warmup=3, ahead=rank, seed=rank)
real = []
for _ in range(3):
    for batch in probe:
        real.append(batch["real"])
        optimizer.zero_grad()
        model(batch["x"]).sum().backward()
        optimizer.step()
        meet()
        clock.sleep(STEP_S)
report = probe.report(predict=False)
kinds = [stretch.is_real for stretch in report.stretches for _ in range(stretch.steps)]
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps({"kinds": kinds, "gain": report.gain}))
distributed.barrier()
distributed.destroy_process_group()
os._exit(0)
