"""Datasets of any records, written from Python."""

from .convert import ConvertSummary, convert
from .function import Reject
from .types import array

__all__ = ["ConvertSummary", "Reject", "array", "convert"]
