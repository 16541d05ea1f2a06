"""Fresh attackers and fresh task models. They see released rows, never the encoder that made them."""

from fairveil.auditing.probes import Probe, probe

__all__ = ["Probe", "probe"]
