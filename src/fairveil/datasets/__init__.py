"""Real data sets, prepared as in the paper, found on this machine and never downloaded."""

from fairveil.datasets.adult import load_adult
from fairveil.datasets.base import Split

__all__ = ["Split", "load_adult"]
