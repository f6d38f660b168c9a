"""Report of a headspace measurement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from .bench_report import duration
from ..counts import counted
from .step_time_plot import step_time_svg
from .worker_prediction import WorkerPrediction

SMALL_GAIN = 0.02
"""Share of the training time below which the cost of loading counts as small."""
STEP_TOLERANCE = 0.02
"""Workers count as sufficient if a step takes at most this share longer than without loading."""

MIN_LOW_SHARE = 1 / 3
"""Share of the gain that the low end of its interval must reach for a measurement to count as clear."""

# Quantile 0.975 of Student's t for 1, 2, … degrees of freedom.
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Stretch(NamedTuple):
    """Consecutive steps between two readings of the clock."""

    is_real: bool
    """Whether the batches came from the loader instead of the cache."""
    pair: int
    """Ordinal of the pair of stretches it belongs to."""
    first_step: int
    steps: int
    elements: int
    """Padded elements that were delivered."""
    seconds: float = 0.0
    wait_seconds: float = 0.0
    """Time spent in `next()` of the loader."""


@dataclass(frozen=True)
class HeadspaceReport:
    """Step time with and without loading. `repr()` is a table, and `to_svg()` a plot."""

    step_ms: float
    """Mean time of a step with loading."""
    cached_step_ms: float
    """Mean time of a step on cached batches: without loading."""
    gain: float
    """Share of the training time that loading costs."""
    gain_interval: tuple[float, float] | None
    """95% interval of the gain, from the differences within pairs; None with one pair. The true gain is between 0 and 1,
    but the ends of a wide interval may not be. `repr()` and the verdict clip them."""
    hours: float | None
    """Hours that a run of `total_steps` steps would save without loading."""
    total_steps: int | None
    wait_ms: float
    """Mean time in `next()` per step: a diagnostic. It overlaps work that is queued on the device."""
    padding_share: float | None
    """Padding as a share of the elements; None if batches have neither a mask nor lengths."""
    padding_ms: float | None
    """`padding_share` of a step without loading: the approximate cost of padding, if step time is proportional to elements."""
    elements_per_step: float
    """Padded elements of a real step."""
    cached_elements_per_step: float
    """Padded elements of a cached step."""
    pairs: int
    planned_pairs: int
    """Fewer pairs are measured when the loop or the loader ends early."""
    seconds: float
    """Duration of the measurement."""
    workers: tuple[WorkerPrediction, ...]
    """Simulated step times with other numbers of workers; empty if load times cannot be measured."""
    workers_in_use: int | None
    """Number of workers of the loader that was measured (for a `Loader`: threads); None for other loaders."""
    workers_error: str | None
    """Error because of which other numbers of workers could not be simulated."""
    stretches: tuple[Stretch, ...]

    @classmethod
    def of(
        cls,
        stretches: Sequence[Stretch],
        *,
        planned_pairs: int,
        total_steps: int | None,
        seconds: float,
        padding_share: float | None,
        predict: Callable[[float], list[WorkerPrediction]] | None,
        workers_in_use: int | None = None,
    ) -> HeadspaceReport:
        """Computes the report from complete pairs of stretches."""
        numbers = sorted({stretch.pair for stretch in stretches})
        real = [_per_step(stretches, pair, True) for pair in numbers]
        cached = [_per_step(stretches, pair, False) for pair in numbers]
        step_s, cached_s = statistics.fmean(real), statistics.fmean(cached)
        step_s = max(step_s, 1e-12)
        gain = (step_s - cached_s) / step_s
        workers: list[WorkerPrediction] = []
        error = None
        if predict is not None:
            try:
                workers = predict(cached_s * 1e3)
            except Exception as failure:  # the user's dataset may fail outside of a worker
                error = f"{type(failure).__name__}: {failure}"
        real_stretches = [stretch for stretch in stretches if stretch.is_real]
        real_steps = sum(stretch.steps for stretch in real_stretches)
        cached_steps = sum(stretch.steps for stretch in stretches) - real_steps
        real_elements = sum(stretch.elements for stretch in real_stretches)
        return cls(
            step_ms=step_s * 1e3,
            cached_step_ms=cached_s * 1e3,
            gain=gain,
            gain_interval=_interval([(a - b) / step_s for a, b in zip(real, cached, strict=True)]),
            hours=None if total_steps is None else (step_s - cached_s) * total_steps / 3600,
            total_steps=total_steps,
            wait_ms=sum(stretch.wait_seconds for stretch in real_stretches) / real_steps * 1e3,
            padding_share=padding_share,
            padding_ms=None if padding_share is None else padding_share * cached_s * 1e3,
            elements_per_step=real_elements / real_steps,
            cached_elements_per_step=(sum(stretch.elements for stretch in stretches) - real_elements) / cached_steps,
            pairs=len(numbers),
            planned_pairs=planned_pairs,
            seconds=seconds,
            workers=tuple(workers),
            workers_in_use=workers_in_use,
            workers_error=error,
            stretches=tuple(stretches),
        )

    @property
    def verdict(self) -> str:
        """The result in words, with a recommendation."""
        if self.gain_interval is None:
            return (
                f"unclear: only one pair of stretches was measured, in which loading costs {self.gain:.1%}; "
                f"{self._measure_longer()}"
            )
        low, high = self.gain_interval
        if high < SMALL_GAIN:
            return "loading is not the bottleneck: optimize the model instead"
        if low <= 0 or low < self.gain * MIN_LOW_SHARE:
            least = "nothing" if low <= 0 else f"{low:.1%}"
            return (
                f"unclear: loading costs between {least} and {_clipped(high):.1%} of the training time; "
                f"{self._measure_longer()}, or on an otherwise idle machine"
            )
        if self.gain < SMALL_GAIN:
            return f"loading costs little, {self.gain:.1%} of the training time: optimize the model instead"
        return f"loading costs {self.gain:.1%} of the training time{self._remedy()}"

    def _measure_longer(self) -> str:
        if self.pairs < self.planned_pairs:
            return f"continue the loop until all {self.planned_pairs} pairs are measured"
        steps = sum(stretch.steps for stretch in self.stretches)
        return f"measure longer, for example with steps={max(400, math.ceil(4 * steps / 100) * 100)}"

    def _remedy(self) -> str:
        if not self.workers:
            return ""
        enough = next((w for w in self.workers if w.step_ms <= self.cached_step_ms * (1 + STEP_TOLERANCE)), None)
        in_use = self.workers_in_use or 0
        if enough is not None and enough.workers <= in_use:
            are = "is" if in_use == 1 else "are"
            return (
                f"; by simulation, the {counted(in_use, 'worker')} in use {are} enough, so load times do not explain this: "
                "look at the transfer of batches from workers to the training process, and at workers that compete with "
                "the step for cores"
            )
        if enough is not None:
            return f"; by simulation, {counted(enough.workers, 'worker')} would remove it"
        best = min(self.workers, key=lambda w: w.step_ms)
        help_up_to = f"help up to {best.workers}, with {duration(best.step_ms)} per step"
        return (
            f"; by simulation, more workers {'do not help' if best.workers <= in_use else help_up_to}: make loading itself "
            "faster, for example with a converted dataset"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields and the verdict, as values that JSON can represent."""
        fields = asdict(self)
        fields["stretches"] = [stretch._asdict() for stretch in self.stretches]
        return {**fields, "verdict": self.verdict}

    def to_svg(self, title: str = "Step time with and without loading") -> str:
        """Returns a plot of the step time of each stretch, as SVG."""
        return step_time_svg(
            [(s.is_real, s.first_step, s.steps, s.seconds / s.steps * 1e3) for s in self.stretches],
            self.step_ms,
            self.cached_step_ms,
            title,
        )

    def __repr__(self) -> str:
        interval = ""
        if self.gain_interval is not None:
            low, high = map(_clipped, self.gain_interval)
            interval = f" (95% interval {low * 100:.1f} to {high:.1%})"
        gained = [f"{self.gain:.1%}{interval}"]
        if self.hours is not None:
            gained.append(f"{self.hours:.2g} hours in {self.total_steps:,} steps")
        planned = "" if self.pairs == self.planned_pairs else f" of {self.planned_pairs}"
        steps = sum(stretch.steps for stretch in self.stretches)
        rows = [
            ("step time", f"{duration(self.step_ms)} → {duration(self.cached_step_ms)}, {', '.join(gained)}"),
            ("measured", f"{self.pairs}{planned} pairs of stretches, {steps} steps, {self.seconds:.3g} s in all"),
            (
                "wait",
                f"{duration(self.wait_ms)} in next(), {self.wait_ms / self.step_ms:.1%} of a step; a diagnostic, since it "
                "overlaps queued work of the device",
            ),
        ]
        if self.padding_share is not None and self.padding_ms is not None:
            rows.append(
                ("padding", f"{self.padding_share:.1%} of the elements, about {duration(self.padding_ms)} of a step")
            )
        if self.elements_per_step > 0:
            off = self.cached_elements_per_step / self.elements_per_step - 1
            rows.append(
                (
                    "elements",
                    f"{self.elements_per_step:,.0f} per real step, {self.cached_elements_per_step:,.0f} per cached step "
                    f"({off:+.1%})",
                )
            )
        if self.workers:
            rows.append(
                ("simulated", ", ".join(f"{counted(w.workers, 'worker')} {duration(w.step_ms)}" for w in self.workers))
            )
        elif self.workers_error is not None:
            rows.append(("simulated", f"not possible: {self.workers_error}"))
        rows.append(("verdict", self.verdict))
        return "\n".join(f"{name:<12}  {value}" for name, value in rows)


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _per_step(stretches: Sequence[Stretch], pair: int, is_real: bool) -> float:
    chosen = [s for s in stretches if s.pair == pair and s.is_real == is_real]
    return sum(s.seconds for s in chosen) / sum(s.steps for s in chosen)


def _interval(gains: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95% confidence interval of the mean, from Student's t-distribution."""
    if len(gains) < 2:
        return None
    freedom = len(gains) - 1
    t = _T975[freedom - 1] if freedom <= len(_T975) else 1.96 + 2.5 / freedom
    mean = statistics.fmean(gains)
    half = t * statistics.stdev(gains) / math.sqrt(len(gains))
    return mean - half, mean + half
