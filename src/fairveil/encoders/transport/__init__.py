"""The transport encoder: rows move to records of other groups, along optimal matchings."""

from fairveil.encoders.transport.encoder import Transport

__all__ = ["Transport"]
