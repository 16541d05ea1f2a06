"""The data sets of the paper: real ones, found on this machine and never downloaded, and its synthetic mixture."""

from fairveil.datasets.adult import load_adult
from fairveil.datasets.base import Split
from fairveil.datasets.mixture import GaussianMixture, gaussian_mixture

__all__ = ["GaussianMixture", "Split", "gaussian_mixture", "load_adult"]
