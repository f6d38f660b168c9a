"""Results of `bench`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Percentiles:
    """Distribution of times in milliseconds."""

    mean_ms: float
    p50_ms: float
    p99_ms: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Percentiles | None:
        """Computes the distribution of times in seconds. Returns None if there are none."""
        if not seconds:
            return None
        ordered = sorted(seconds)
        p50, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1e3 for share in (0.5, 0.99))
        return cls(sum(ordered) / len(ordered) * 1e3, p50, p99, len(ordered))

    def __str__(self) -> str:
        return f"p50 {duration(self.p50_ms)}, p99 {duration(self.p99_ms)}"


@dataclass(frozen=True)
class LoadBreakdown:
    """Time that one worker spends on a batch, measured in this process."""

    batch: Percentiles
    """Time to load a batch."""
    getitem_share: float | None
    """Share of that time in `__getitem__` of the dataset, or in its iterator; None if they cannot be measured separately."""
    collate_share: float | None
    """Share of that time in `collate_fn`."""
    cpu_share: float
    """CPU time ÷ elapsed time: near 1, loading is limited by the CPU; near 0, by the disk or network."""


@dataclass(frozen=True)
class BenchReport:
    """Throughput, latency and padding of a dataset or loader. `repr()` is a table."""

    source: str
    """What was measured."""
    items: int
    """Items of all repeats, without warm-up."""
    batches: int | None
    """Batches of all repeats; None if the source returns single items."""
    seconds: float
    """Time of all repeats."""
    repeats: int
    items_per_second: float
    """Median of the repeats, like the other rates."""
    batches_per_second: float | None
    bytes_per_second: float
    tokens_per_second: float | None
    """Token ids without padding; None if there are no token ids."""
    spread: float | None
    """(Fastest − slowest repeat) ÷ median; None with one repeat."""
    item: Percentiles | None
    """Time per item in this process; None if only whole batches can be timed."""
    batch: Percentiles | None
    """Time in `next()` per batch. If the loader loads ahead, this is the time between batches."""
    padding_share: float | None
    """Padding as a share of the elements delivered; None if batches have neither a mask nor lengths."""
    load: LoadBreakdown | None
    """Time that one worker spends on a batch."""
    ended_early: bool
    """Whether the source ended before `seconds` or `items`."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as values that JSON can represent."""
        return asdict(self)

    def __repr__(self) -> str:
        rates = [f"{number(self.items_per_second)} items/s"]
        if self.batches_per_second is not None:
            rates.append(f"{number(self.batches_per_second)} batches/s")
        if self.bytes_per_second > 0:
            rates.append(f"{number(self.bytes_per_second / 1e6)} MB/s")
        if self.tokens_per_second is not None:
            rates.append(f"{number(self.tokens_per_second)} tokens/s")
        runs = f"{self.repeats} runs" if self.repeats > 1 else "1 run"
        spread = "" if self.spread is None else f", spread {self.spread:.1%}"
        counted = f"{self.items:,} items" if self.batches is None else f"{self.batches:,} batches"
        ended = ", until the end of the data" if self.ended_early else ""
        rows = [
            ("source", self.source),
            ("throughput", ", ".join(rates)),
            ("measured", f"{counted} in {self.seconds:.3g} s, {runs}{spread}{ended}"),
        ]
        if self.item is not None:
            rows.append(("item", str(self.item)))
        if self.batch is not None:
            rows.append(("batch", str(self.batch)))
        if self.load is not None:
            shares = [
                f"{name} {share:.1%}"
                for name, share in (("__getitem__", self.load.getitem_share), ("collate", self.load.collate_share))
                if share is not None
            ]
            parts = [f"mean {duration(self.load.batch.mean_ms)}", str(self.load.batch), *shares]
            rows.append(("load", f"{', '.join(parts)}, CPU {self.load.cpu_share:.0%} (one batch in one process)"))
        if self.padding_share is not None:
            rows.append(("padding", f"{self.padding_share:.1%} of the elements delivered"))
        return "\n".join(f"{name:<12}  {value}" for name, value in rows)


def number(x: float) -> str:
    """Formats a number with four significant digits and separators, without an exponent: `52.73`, `12,346`."""
    return f"{x:,.0f}" if abs(x) >= 999.95 else f"{x:.4g}"


def duration(ms: float) -> str:
    """Formats a time with a suitable unit."""
    if abs(ms) >= 10_000:
        return f"{ms / 1e3:.3g} s" if abs(ms) < 999_500 else f"{ms / 1e3:,.0f} s"
    if abs(ms) >= 1:
        return f"{ms:.0f} ms" if abs(ms) >= 999.5 else f"{ms:.3g} ms"
    return f"{ms * 1e3:.3g} µs"
