"""The data sets of the paper: real ones, read from this machine and never downloaded, and its synthetic mixture.

Examples
--------
>>> import fairveil as fv
>>> train, test = fv.datasets.load_adult(case="I")  # doctest: +SKIP
>>> train.X, train.S, train.targets["salary"]  # doctest: +SKIP
"""

from fairveil.datasets.adult import load_adult
from fairveil.datasets.base import ImageSplit, Split
from fairveil.datasets.genki import load_genki
from fairveil.datasets.har import load_har
from fairveil.datasets.mixture import GaussianMixture, gaussian_mixture
from fairveil.datasets.utkface import load_utkface

__all__ = [
    "GaussianMixture",
    "ImageSplit",
    "Split",
    "gaussian_mixture",
    "load_adult",
    "load_genki",
    "load_har",
    "load_utkface",
]
