"""Closed forms and exact solutions, without torch: Gaussian groups, discrete adversaries, optimal channels.

Examples
--------
>>> import fairveil as fv
>>> round(fv.theory.gaussian.map_accuracy(0.0, 0.3), 3)  # without a difference, the best guess is the larger group
0.7
"""

from fairveil.theory import adversary, channel, gaussian, transport

__all__ = ["adversary", "channel", "gaussian", "transport"]
