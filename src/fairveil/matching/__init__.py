"""Release by matching: rows that are at hand exchange their records, without a network."""

from fairveil.matching.exchange import exchange

__all__ = ["exchange"]
