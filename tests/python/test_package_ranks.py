"""The Python package: ranks and threads found in the environment."""

import pytest

import dsconvert
from dsconvert import ranks

pytestmark = pytest.mark.usefixtures("no_ranks")


def test_threads_are_shared_by_the_ranks_of_a_machine(monkeypatch):
    monkeypatch.setattr(ranks.os, "sched_getaffinity", lambda _: range(12))
    assert ranks.default_threads() == 12
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ranks.default_threads() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert ranks.default_threads() == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "6(x2),3")
    assert ranks.default_threads() == 2


@pytest.mark.parametrize(("gpus", "threads"), [(0, 3), (2, 6), (8, 3)])
def test_threads_are_shared_by_the_ranks_of_torch(monkeypatch, gpus, threads):
    torch = pytest.importorskip("torch")
    import torch.distributed as distributed

    monkeypatch.setattr(ranks.os, "sched_getaffinity", lambda _: range(12))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert ranks.default_threads() == 12, "there is no process group"
    for name, value in {"is_available": True, "is_initialized": True, "get_rank": 1, "get_world_size": 4}.items():
        monkeypatch.setattr(distributed, name, lambda value=value: value)
    assert ranks.default_threads() == threads
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert ranks.default_threads() == 6, "what the launcher states takes precedence"


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_ranks_of_the_environment_that_are_too_large_are_refused(monkeypatch, name):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv(name, "99999999999999999999")
    with pytest.raises(dsconvert.UsageError, match=f"{name} cannot be 99999999999999999999: expected an integer"):
        ranks.layout()


def test_a_batch_script_of_slurm_is_a_single_rank(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert ranks.layout() == (0, 1, 1)
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert ranks.layout() == (2, 4, 1)
