"""Datasets of any records, written from Python."""

from .convert import ConvertSummary, convert
from .function import Reject
from .types import array
from .writer import Writer

__all__ = ["ConvertSummary", "Reject", "Writer", "array", "convert"]
