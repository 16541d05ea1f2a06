"""Closed forms and exact solutions, without torch: Gaussian groups, discrete adversaries, optimal channels."""

from fairveil.theory import adversary, channel, gaussian, transport

__all__ = ["adversary", "channel", "gaussian", "transport"]
