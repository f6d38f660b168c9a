"""docs/explanation/scale.md shows the results of tools/scale_simulation.py."""

import importlib.util
import math
import sys

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("scale_simulation", ROOT / "tools/scale_simulation.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_simulated_tables(simulation):
    page = (ROOT / "docs/explanation/scale.md").read_text()
    assert simulation.replaced(page, simulation.tables()) == page, "python tools/scale_simulation.py --write"


def test_without_faults_equal_machines_finish_together(simulation, monkeypatch):
    monkeypatch.setattr(simulation, "SPEED_SIGMA", 0.0)
    cluster = simulation.Cluster(10, 0, stragglers=False, failures=False)
    job = simulation.Job("", "images", 1000 * 2**30, 2**30, 1e8)
    outcome = simulation.simulate(job, cluster, simulation.Parts(job, 10, 1))
    assert outcome.seconds == pytest.approx(100 * job.unit_seconds + simulation.TASK_START_SECONDS)
    assert (outcome.tasks, outcome.failures) == (10, 0)


def test_a_failure_loses_the_unit_that_it_interrupts(simulation, monkeypatch):
    monkeypatch.setattr(simulation, "SPEED_SIGMA", 0.0)
    cluster = simulation.Cluster(1, 0, stragglers=False, failures=False)
    job = simulation.Job("", "images", 10 * 2**30, 2**30, 2**30 / 100 / simulation.CORES)
    failures = iter([351.0, math.inf])
    monkeypatch.setattr(cluster, "next_failure", lambda machine, after: next(failures))
    outcome = simulation.simulate(job, cluster, simulation.Parts(job, 1, 1))
    # Three units of 100 s and half of the fourth, the repair, and seven units.
    assert outcome.seconds == pytest.approx(351 + simulation.REPAIR_SECONDS + 1 + 7 * 100)
    assert (outcome.tasks, outcome.failures) == (2, 1)
