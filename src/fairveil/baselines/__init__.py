"""Published adversarial fair representations and predictors, reimplemented from their papers for comparison.

Each trains one network for every trade-off value and seed, all at once, as fairveil does. They are here to be measured,
not to be used: they release real-valued vectors, and `make compare` shows what a fresh attacker recovers from them.
"""

from fairveil.baselines.alfr import ALFR
from fairveil.baselines.ffvae import FFVAE
from fairveil.baselines.laftr import LAFTR
from fairveil.baselines.zhang import Zhang

__all__ = ["ALFR", "FFVAE", "LAFTR", "Zhang"]
