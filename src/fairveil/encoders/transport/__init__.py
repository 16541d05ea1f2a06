"""The transport encoder: rows move to records of other groups, along optimal matchings."""

from fairveil.encoders.transport.encoder import Transport, why_no_transport

__all__ = ["Transport", "why_no_transport"]
