"""Closed forms and exact solutions, without torch: Gaussian mixtures, discrete adversaries, optimal channels."""

from fairveil.theory import adversary, channel, gaussian

__all__ = ["adversary", "channel", "gaussian"]
