"""Counts in messages."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """Formats a count as `1 record` or `2,000 records`. The plural is `many`, or `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
