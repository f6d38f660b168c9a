"""Progress and report of a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ConversionProgress:
    """Progress of a running conversion."""

    units: int
    """Work units that were unfinished at the start."""
    done: int
    """Units that have finished since then."""
    failed: int
    """Units whose tasks failed and are no longer retried."""
    tasks: int
    """Tasks that have been submitted and not finished."""
    seconds: float
    """Time since the first task was submitted."""
    source_bytes: int
    """Source bytes of the finished units, estimated from the number of units."""

    @property
    def bytes_per_second(self) -> float:
        """Source bytes per second so far."""
        return self.source_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time until all units are finished at this rate; `None` before the first one is finished."""
        if not self.done:
            return None
        return self.seconds * (self.units - self.done - self.failed) / self.done


@dataclass(frozen=True)
class ConversionReport:
    """Report of a conversion by `dsconvert.ray.convert`."""

    out: Path
    """The dataset."""
    records: int
    """Records of all splits."""
    rejected: int
    """Rejected items; `rejects.jsonl` of the dataset lists them."""
    units: int
    """Work units of the plan."""
    converted: int
    """Units that this call converted; the others were finished before."""
    tasks: int
    """Ray tasks that were submitted; retries of a task are not counted."""
    seconds: float
    """Time for everything: plan, tasks and commit."""
    summary: str
    """What `dsconvert merge` printed."""
