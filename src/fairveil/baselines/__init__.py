"""Adversarial fair representations and predictors by others, written from their papers: what ours is compared with.

Each trains one network for every trade-off value and seed, all at once, as the product does. They are here to be
measured, not to be used: what they release are real-valued vectors, and `make compare` shows what a fresh
attacker finds in them.
"""

from fairveil.baselines.alfr import ALFR
from fairveil.baselines.ffvae import FFVAE
from fairveil.baselines.laftr import LAFTR
from fairveil.baselines.zhang import Zhang

__all__ = ["ALFR", "FFVAE", "LAFTR", "Zhang"]
