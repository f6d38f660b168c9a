"""Data-parallel rank of this process."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import NamedTuple

from ._native import share
from .arguments import MAX_COUNT, integer
from .errors import UsageError

logger = logging.getLogger("dsconvert")

# Environment variables that launchers set: rank and world size.
_RANKS = [
    ("RANK", "WORLD_SIZE"),  # torchrun, and most others
    # SLURM_NTASKS would be wrong: it is also set in a batch script, which is a single process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]
# Number of ranks on this machine. Slurm lists machines: `4(x2),3`.
_LOCAL = ["LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]

_said: set[tuple[object, ...]] = set()


class Layout(NamedTuple):
    """Rank of a process. Each group of `replication` adjacent processes gets identical batches."""

    rank: int
    world_size: int
    replication: int = 1

    def share(self, micro_batches: int) -> list[int]:
        """Returns the micro-batches of a step that belong to this process, in order."""
        return share(self.rank, self.world_size, self.replication, micro_batches)

    @property
    def ranks(self) -> int:
        """Number of data-parallel ranks."""
        return self.world_size // self.replication


def layout(rank: int | None = None, world_size: int | None = None, replication: int = 1) -> Layout:
    """Returns the given layout or, by default, that of `torch.distributed` or of the environment.

    A layout that was detected is logged once, by the logger `dsconvert`.
    """
    if (rank is None) != (world_size is None):
        raise UsageError("give both rank and world_size, or neither")
    if rank is not None and world_size is not None:
        found, source = (integer("rank", rank, MAX_COUNT), integer("world_size", world_size, MAX_COUNT)), None
    else:
        found, source = _from_torch() or _from_environment() or ((0, 1), None)
    chosen = Layout(*found, integer("replication", replication, MAX_COUNT))
    # Raises an error for an impossible layout.
    chosen.share(chosen.ranks if replication > 0 else 1)
    if source is not None and chosen not in _said:
        _said.add(chosen)
        groups = f", in groups of {replication} that get the same batches" if replication > 1 else ""
        logger.warning("using rank %d of %d (from %s)%s", *found, source, groups)
    return chosen


def _from_torch() -> tuple[tuple[int, int], str] | None:
    # A process that has not imported torch is not in a process group.
    if "torch.distributed" not in sys.modules:
        return None
    distributed = sys.modules["torch.distributed"]
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return (distributed.get_rank(), distributed.get_world_size()), "torch.distributed"


def _from_environment() -> tuple[tuple[int, int], str] | None:
    for rank, world_size in _RANKS:
        found = _number(rank), _number(world_size)
        if found[0] is not None and found[1] is not None:
            numbers = integer(rank, found[0], MAX_COUNT), integer(world_size, found[1], MAX_COUNT)
            return numbers, f"{rank} and {world_size}"
    return None


def _number(name: str) -> int | None:
    found = re.match(r"[0-9]+", os.environ.get(name, ""))
    return int(found[0]) if found else None


def default_threads() -> int:
    """Returns the number of cores that this process may use, divided by the ranks on this machine; at least one."""
    local = next((number for number in map(_number, _LOCAL) if number), None) or _assumed_local_ranks()
    return max(1, len(os.sched_getaffinity(0)) // local)


def _assumed_local_ranks() -> int:
    """Returns the assumed number of ranks on this machine if no launcher has set it, as with Lightning and
    `torch.multiprocessing.spawn`: one per visible GPU, or all ranks on a machine without GPUs.

    Asking the other ranks would block until each of them creates a loader.
    """
    found = _from_torch()
    if found is None:
        return 1
    (_, world_size), _ = found
    gpus: int = sys.modules["torch"].cuda.device_count()
    return min(world_size, gpus) if gpus else world_size
