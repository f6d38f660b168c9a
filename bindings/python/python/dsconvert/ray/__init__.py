"""Conversions and datasets on a Ray cluster.

* `dsconvert.ray.convert("images", "photos", "photos-256", resize="shorter:256")` converts as Ray tasks. The dataset is
  byte-identical to the one that the command `dsconvert images` writes.
* `dsconvert.ray.read("photos-256")` returns the records as a `ray.data.Dataset`.
* `python -m dsconvert.ray images photos --out photos-256 --resize shorter:256` is the command.

Ray is imported only when one of these is called. The guide is `docs/how-to/convert-with-ray.md` in the repository.
"""

from .conversion import convert
from .progress import ConversionProgress, ConversionReport
from .reading import read

__all__ = ["ConversionProgress", "ConversionReport", "convert", "read"]
