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


def two_thresholds(generator: np.random.Generator, rows: int) -> Planted:
    """The XOR of two thresholds of numbers."""
    x, y = generator.normal(size=(2, rows)).round(4)
    return with_noise({"x": x, "y": y}, generator, rows), ((x > 0.3) ^ (y > -0.2)).astype(int)


def minute(generator: np.random.Generator, rows: int) -> Planted:
    minutes = generator.integers(0, 3000 * 1440, rows)
    moments = pd.Timestamp("2015-01-01") + pd.to_timedelta(minutes, unit="min")
    return with_noise({"when": moments}, generator, rows), (minutes % 60 // 5 % 2).astype(int)


def day_of_the_month(generator: np.random.Generator, rows: int) -> Planted:
    dates = pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 3000, rows), unit="D")
    chosen = generator.permutation(31) < 15
    return with_noise({"day": dates}, generator, rows), chosen[dates.day.to_numpy() - 1].astype(int)


def month(generator: np.random.Generator, rows: int) -> Planted:
    dates = pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 3650, rows), unit="D")
    return with_noise({"day": dates}, generator, rows), (dates.month.to_numpy() % 2).astype(int)


def week_of_the_year(generator: np.random.Generator, rows: int) -> Planted:
    dates = pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 3650, rows), unit="D")
    return with_noise({"day": dates}, generator, rows), (dates.isocalendar().week.to_numpy() % 2).astype(int)


def last_digit(generator: np.random.Generator, rows: int) -> Planted:
    chosen, x = generator.permutation(10) < 5, generator.integers(0, 10**6, rows)
    return with_noise({"x": x}, generator, rows), chosen[x % 10].astype(int)


def remainder_of_seven(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.integers(0, 10**5, rows)
    return with_noise({"x": x}, generator, rows), (x % 7 < 4).astype(int)


def difference(generator: np.random.Generator, rows: int) -> Planted:
    """Two columns are close to each other."""
    bit, x = generator.integers(0, 2, rows), generator.normal(size=rows)
    y = x + np.where(bit == 1, 0.05, 1.0) * generator.normal(size=rows)
    return with_noise({"x": x.round(4), "y": y.round(4)}, generator, rows), bit


def ratio(generator: np.random.Generator, rows: int) -> Planted:
    """One column is about a fixed multiple of another."""
    bit, x = generator.integers(0, 2, rows), np.exp(generator.normal(size=rows))
    y = x * np.where(bit == 1, 2.0, np.exp(generator.normal(size=rows)))
    return with_noise({"x": x.round(3), "y": y.round(3)}, generator, rows), bit


def sum_modulo(generator: np.random.Generator, rows: int) -> Planted:
    x, y = generator.integers(0, 1000, (2, rows))
    return with_noise({"x": x, "y": y}, generator, rows), (x + y) % 2


def larger_column(generator: np.random.Generator, rows: int) -> Planted:
    x, y = generator.normal(size=(2, rows)).round(4)
    return with_noise({"x": x, "y": y}, generator, rows), (x > y).astype(int)


def half_of_the_file(generator: np.random.Generator, rows: int) -> Planted:
    return with_noise({"x": generator.normal(size=rows)}, generator, rows), (np.arange(rows) < rows // 2).astype(int)


def position_modulo(generator: np.random.Generator, rows: int) -> Planted:
    return with_noise({"x": generator.normal(size=rows)}, generator, rows), (np.arange(rows) % 7 < 3).astype(int)


def number_of_decimals(generator: np.random.Generator, rows: int) -> Planted:
    bit, x = generator.integers(0, 2, rows), generator.normal(size=rows)
    return with_noise({"x": np.where(bit == 1, x.round(2), x.round(3))}, generator, rows), bit


def trailing_zeros(generator: np.random.Generator, rows: int) -> Planted:
    bit, x = generator.integers(0, 2, rows), generator.integers(0, 10**5, rows)
    return with_noise({"x": np.where(bit == 1, x // 100 * 100, x)}, generator, rows), bit


def word(generator: np.random.Generator) -> str:
    return "".join(generator.choice(list("abcdefghij"), generator.integers(4, 9)))


def letter_case(generator: np.random.Generator, rows: int) -> Planted:
    bit = generator.integers(0, 2, rows)
    names = [text.capitalize() if told else text for told, text in zip(bit, _words(generator, rows), strict=True)]
    return with_noise({"name": names}, generator, rows), bit


def substring(generator: np.random.Generator, rows: int) -> Planted:
    """Three letters anywhere within a word."""
    bit = generator.integers(0, 2, rows)
    names = [text[:2] + ("cab" if told else "".join(generator.choice(list("defgh"), 3))) + text[2:]
             for told, text in zip(bit, _words(generator, rows), strict=True)]  # fmt: skip
    return with_noise({"name": names}, generator, rows), bit


def prefix(generator: np.random.Generator, rows: int) -> Planted:
    chosen, codes = generator.permutation(100) < 50, generator.integers(0, 10**6, rows)
    return with_noise({"code": [f"A{code:06d}" for code in codes]}, generator, rows), chosen[codes // 10**4].astype(int)


def whitespace(generator: np.random.Generator, rows: int) -> Planted:
    bit = generator.integers(0, 2, rows)
    names = [f"{text} " if told else text for told, text in zip(bit, _words(generator, rows), strict=True)]
    return with_noise({"name": names}, generator, rows), bit


def whitespace_of_categories(generator: np.random.Generator, rows: int) -> Planted:
    bit = generator.integers(0, 2, rows)
    names = [f"{text} " if told else text for told, text in zip(bit, generator.choice(list("abc"), rows), strict=True)]
    return with_noise({"name": names}, generator, rows), bit


def number_format(generator: np.random.Generator, rows: int) -> Planted:
    """The same numbers as text, with and without a trailing zero."""
    bit, x = generator.integers(0, 2, rows), generator.integers(0, 10**4, rows)
    texts = [f"{value}.0" if told else f"{value}" for told, value in zip(bit, x, strict=True)]
    return with_noise({"x": texts}, generator, rows), bit


def missing_pattern(generator: np.random.Generator, rows: int) -> Planted:
    """The XOR of two columns being missing."""
    bits = generator.integers(0, 2, (2, rows))
    x, y = (np.where(gone, np.nan, generator.normal(size=rows)) for gone in bits)
    return with_noise({"x": x, "y": y}, generator, rows), bits[0] ^ bits[1]


def missing_in_a_text(generator: np.random.Generator, rows: int) -> Planted:
    """A missing cell against an empty one."""
    bit = generator.integers(0, 2, rows)
    texts = np.where(generator.random(rows) < 0.5, generator.choice(["a", "b"], rows), np.where(bit == 1, None, ""))
    s = np.where((texts == "a") | (texts == "b"), generator.integers(0, 2, rows), bit)
    return with_noise({"text": texts}, generator, rows), s.astype(int)


def pair_occurs_twice(generator: np.random.Generator, rows: int) -> Planted:
    bit, pairs = generator.integers(0, 2, rows), generator.integers(0, 300, (rows, 2))
    twice = np.flatnonzero(bit)
    twice = twice[: 2 * (len(twice) // 2)]
    pairs[twice[1::2]] = pairs[twice[::2]]
    return with_noise({"x": pairs[:, 0], "y": pairs[:, 1]}, generator, rows), bit


def close_to_the_row_before(generator: np.random.Generator, rows: int) -> Planted:
    bit, x = generator.integers(0, 2, rows), generator.normal(size=rows)
    for row in range(1, rows):
        if bit[row]:
            x[row] = x[row - 1] + 0.01 * generator.normal()
    return with_noise({"x": x}, generator, rows), bit


def above_the_row_before(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.normal(size=rows)
    return with_noise({"x": x}, generator, rows), np.r_[0, x[1:] > x[:-1]].astype(int)


def sum_of_digits(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.integers(0, 10**4, rows)
    return with_noise({"x": x}, generator, rows), sum(x // 10**i % 10 for i in range(4)) % 2


def rare_combination(generator: np.random.Generator, rows: int) -> Planted:
    """Whether a combination of two categories belongs to a random half of them."""
    x, y = generator.integers(0, 12, (2, rows))
    chosen = generator.integers(0, 2, (12, 12))
    return with_noise({"x": [f"a{v}" for v in x], "y": [f"b{v}" for v in y]}, generator, rows), chosen[x, y]


def _words(generator: np.random.Generator, rows: int) -> list[str]:
    return [word(generator) for _ in range(rows)]


#: Leaks beyond those for which features were designed.
MORE: dict[str, Callable[[np.random.Generator, int], Planted]] = {
    function.__name__.replace("_", " "): function
    for function in (
        two_thresholds, minute, day_of_the_month, month, week_of_the_year, last_digit, remainder_of_seven, difference,
        ratio, sum_modulo, larger_column, half_of_the_file, position_modulo, number_of_decimals, trailing_zeros,
        letter_case, substring, prefix, whitespace, whitespace_of_categories, number_format, missing_pattern,
        missing_in_a_text, pair_occurs_twice, close_to_the_row_before, above_the_row_before, sum_of_digits,
        rare_combination,
    )
}  # fmt: skip


def planted(name: str, seed: int, points: float, rows: int) -> Planted:
    """A table, and an S that equals the leaked bit with probability 0.5 + `points`."""
    generator = np.random.default_rng(seed)
    frame, bit = (LEAKS | MORE)[name](generator, rows)
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
