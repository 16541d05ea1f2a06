"""Leaks to plant in tables of noise: each returns a table and the bit that it reveals."""

from collections.abc import Callable

import numpy as np
import pandas as pd

Planted = tuple[pd.DataFrame, np.ndarray]


def with_noise(columns: dict, generator: np.random.Generator, rows: int) -> pd.DataFrame:
    """Add two columns of independent noise."""
    noise = {"other": generator.normal(size=rows), "colour": generator.choice(list("uvwxyz"), rows)}
    return pd.DataFrame(columns | noise)


def parity_of_three(generator: np.random.Generator, rows: int) -> Planted:
    """The parity of three columns; it is independent of any two of them."""
    bits = generator.integers(0, 2, (rows, 5))
    columns = {f"b{i}": bits[:, i] for i in range(5)}
    return with_noise(columns, generator, rows), bits[:, 0] ^ bits[:, 1] ^ bits[:, 2]


def equal_columns(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.integers(0, 40, rows)
    y = np.where(generator.random(rows) < 0.5, x, generator.integers(0, 40, rows))
    return with_noise({"x": x, "y": y}, generator, rows), (x == y).astype(int)


def occurs_twice(generator: np.random.Generator, rows: int) -> Planted:
    bit, names = generator.integers(0, 2, rows), generator.integers(0, 10**9, rows)
    twice = np.flatnonzero(bit)
    twice = twice[: 2 * (len(twice) // 2)]
    names[twice[1::2]] = names[twice[::2]]
    return with_noise({"id": names}, generator, rows), bit


def shuffled_codes(generator: np.random.Generator, rows: int) -> Planted:
    """Whether an integer belongs to a random half of thirty."""
    chosen, x = generator.permutation(30) < 15, generator.integers(0, 30, rows)
    return with_noise({"x": x}, generator, rows), chosen[x].astype(int)


def wave(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.random(rows)
    return with_noise({"x": x}, generator, rows), (np.sin(20 * x) > 0).astype(int)


def word_in_a_text(generator: np.random.Generator, rows: int) -> Planted:
    bit = generator.integers(0, 2, rows)
    words = generator.choice([f"w{i}" for i in range(300)], (rows, 6)).astype(object)
    words[bit == 1, 3] = "magic"
    return with_noise({"text": [" ".join(row) for row in words]}, generator, rows), bit


def length_of_a_text(generator: np.random.Generator, rows: int) -> Planted:
    lengths = generator.integers(5, 40, rows)
    texts = ["".join(generator.choice(list("abcdefg "), length)) for length in lengths]
    return with_noise({"text": texts}, generator, rows), lengths % 2


def weekday(generator: np.random.Generator, rows: int) -> Planted:
    days = generator.integers(0, 3000, rows)
    dates = pd.Timestamp("2015-01-01") + pd.to_timedelta(days, unit="D")
    return with_noise({"day": dates}, generator, rows), ((days + 3) % 7 < 3).astype(int)


def hour(generator: np.random.Generator, rows: int) -> Planted:
    minutes = generator.integers(0, 3000 * 1440, rows)
    moments = pd.Timestamp("2015-01-01") + pd.to_timedelta(minutes, unit="min")
    return with_noise({"when": moments}, generator, rows), (minutes // 60 % 24 < 12).astype(int)


def hour_of_an_epoch(generator: np.random.Generator, rows: int) -> Planted:
    """The hour of seconds since 1970, stored as integers."""
    seconds = 1_400_000_000 + generator.integers(0, 10**8, rows)
    return with_noise({"when": seconds}, generator, rows), (seconds // 3600 % 24 < 12).astype(int)


def weekday_in_a_text(generator: np.random.Generator, rows: int) -> Planted:
    frame, bit = weekday(generator, rows)
    return frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d")), bit


def hundreds_digit(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.integers(0, 100_000, rows)
    return with_noise({"x": x}, generator, rows), x // 100 % 2


def equals_the_row_before(generator: np.random.Generator, rows: int) -> Planted:
    bit, x = generator.integers(0, 2, rows), generator.integers(0, 1000, rows)
    for row in range(1, rows):
        if bit[row]:
            x[row] = x[row - 1]
    return with_noise({"x": x}, generator, rows), bit


LEAKS: dict[str, Callable[[np.random.Generator, int], Planted]] = {
    function.__name__.replace("_", " "): function
    for function in (
        parity_of_three, equal_columns, occurs_twice, shuffled_codes, wave, word_in_a_text, length_of_a_text, weekday,
        hour, hour_of_an_epoch, weekday_in_a_text, hundreds_digit, equals_the_row_before,
    )
}  # fmt: skip


def planted(name: str, seed: int, points: float, rows: int) -> Planted:
    """A table, and an S that equals the leaked bit with probability 0.5 + `points`."""
    generator = np.random.default_rng(seed)
    frame, bit = LEAKS[name](generator, rows)
    return frame, np.where(generator.random(rows) < 0.5 + points, bit, 1 - bit).astype(int)


def independent(name: str, seed: int, rows: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray | None]:
    """A table that is independent of S, S, and the person of each row if people have several."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, rows)
    if name == "normal":
        return pd.DataFrame(generator.normal(size=(rows, 6)), columns=list("abcdef")), s, None
    if name == "heavy-tailed":
        return pd.DataFrame(generator.standard_cauchy(size=(rows, 4)), columns=list("abcd")), s, None
    if name == "high cardinality":
        names = [f"n{i}" for i in generator.integers(0, rows, rows)]
        return with_noise({"name": names, "id": generator.integers(0, 10**9, rows)}, generator, rows), s, None
    if name == "duplicated":
        frame = pd.DataFrame(generator.integers(0, 4, (rows, 3)), columns=list("abc"))
        return frame.assign(d=generator.choice(["x", "y"], rows)), s, None
    people = np.repeat(np.arange(rows // 10 + 1), 10)[:rows]
    own = generator.normal(size=(people.max() + 1, 5))
    return pd.DataFrame(own[people], columns=list("abcde")), s[people], people


INDEPENDENT = ("normal", "heavy-tailed", "high cardinality", "duplicated", "clustered")
