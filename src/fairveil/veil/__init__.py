"""A veil: a frozen encoder with its schema, as an object and as a file."""

from typing import TYPE_CHECKING

from fairveil._utils.lazy import lazily

if TYPE_CHECKING:
    from fairveil.veil.veil import Veil, take_member

__getattr__, __dir__ = lazily(__name__, {"veil": ["Veil", "take_member"]})

__all__ = ["Veil", "take_member"]
