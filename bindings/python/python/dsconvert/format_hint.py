"""A hint for loaders of datasets that another format would make faster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ._native import faster_format

if TYPE_CHECKING:
    from .dataset import Split

logger = logging.getLogger("dsconvert")

MIN_RECORDS = 10_000
"""Number of records from which the speed of reading them matters."""

_said: set[str] = set()


def suggest_format(split: Split) -> None:
    """Logs, once for each dataset, that a loader would read its token ids faster from another format."""
    if split.kind != "text" or len(split) < MIN_RECORDS or split.path in _said:
        return
    for name in split.format.split(", "):
        faster = faster_format(name)
        if faster is not None:
            _said.add(split.path)
            logger.warning(
                "%s: token ids in %s; a loader reads them about %.2g times as fast from %s, the default of `dsconvert text`, "
                "and many times as fast if they exceed 256 MiB",
                split.path, name, faster[1], faster[0],
            )
            return
