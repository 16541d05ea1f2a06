"""The original rows: the control that every attack must succeed on, and the baseline of the lift."""

from collections.abc import Iterator

from field.protocol import Fitted, Method, Output, Rows


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    yield Fitted("", lambda rows: Output(rows.X))


METHODS = [Method("original", fit, "control")]
