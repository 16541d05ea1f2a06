"""The transport encoder: rows move towards records of another group, along optimal matchings."""

from fairveil.encoders.transport.encoder import Transport

__all__ = ["Transport"]
