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


def repeats_far_away(generator: np.random.Generator, rows: int) -> Planted:
    """The value of a hundred rows before, in a column of many frequent values."""
    bit, x = generator.integers(0, 2, rows), generator.integers(0, 50, rows)
    for row in range(100, rows):
        if bit[row]:
            x[row] = x[row - 100]
    return with_noise({"x": [f"v{value}" for value in x]}, generator, rows), bit


def sum_of_three_modulo(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.integers(0, 1000, (3, rows))
    return with_noise(dict(zip("xyz", x, strict=True)), generator, rows), x.sum(axis=0) % 2


def sign_of_three(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.normal(size=(3, rows)).round(4)
    return with_noise(dict(zip("xyz", x, strict=True)), generator, rows), (x.prod(axis=0) > 0).astype(int)


def adds_up(generator: np.random.Generator, rows: int) -> Planted:
    """Two shares add up to 100."""
    bit, (x, y) = generator.integers(0, 2, rows), generator.integers(0, 101, (2, rows))
    return with_noise({"x": x, "y": np.where(bit == 1, 100 - x, y)}, generator, rows), bit


def is_a_total(generator: np.random.Generator, rows: int) -> Planted:
    """One column is the sum of two others."""
    bit, (x, y, z) = generator.integers(0, 2, rows), generator.integers(0, 1000, (3, rows))
    total = np.where(bit == 1, x + y, z + generator.permutation(y))
    return with_noise({"x": x, "total": total, "y": y}, generator, rows), bit


def days_between(generator: np.random.Generator, rows: int) -> Planted:
    first, days = generator.integers(0, 3000, rows), generator.integers(0, 400, rows)
    start = pd.Timestamp("2015-01-01") + pd.to_timedelta(first, unit="D")
    columns = {"start": start, "end": start + pd.to_timedelta(days, unit="D")}
    return with_noise(columns, generator, rows), (days % 7 < 3).astype(int)


def rank_within_a_category(generator: np.random.Generator, rows: int) -> Planted:
    town = generator.integers(0, 200, rows)
    x = (3.0 * generator.normal(size=200)[town] + 0.3 * generator.normal(size=rows)).round(3)
    rank = pd.Series(x).groupby(town).rank(pct=True).to_numpy()
    return with_noise({"town": [f"t{value}" for value in town], "x": x}, generator, rows), (rank > 0.5).astype(int)


def every_second_occurrence(generator: np.random.Generator, rows: int) -> Planted:
    town = pd.Series(generator.integers(0, 200, rows))
    return with_noise({"town": "t" + town.astype(str)}, generator, rows), town.groupby(town).cumcount().to_numpy() % 2


def many_codes(generator: np.random.Generator, rows: int) -> Planted:
    """Whether an integer, like a postcode, belongs to a random half of 120."""
    chosen, x = generator.permutation(120) < 60, generator.integers(0, 120, rows)
    codes = generator.permutation(90_000)[:120] + 10_000
    return with_noise({"x": codes[x]}, generator, rows), chosen[x].astype(int)


def leading_digit(generator: np.random.Generator, rows: int) -> Planted:
    x = np.exp(generator.uniform(0, 14, rows)).astype(int)
    digit = np.array([int(str(value)[0]) for value in x])
    return with_noise({"x": x}, generator, rows), (np.isin(digit, (1, 4, 5, 8))).astype(int)


def digit_within_a_code(generator: np.random.Generator, rows: int) -> Planted:
    """The parity of the fourth digit of a code of letters and digits."""
    x, letters = generator.integers(0, 10**8, rows), generator.choice(list("ABCDEF"), (rows, 2))
    codes = [f"{a}{b}-{value:08d}" for (a, b), value in zip(letters, x, strict=True)]
    return with_noise({"code": codes}, generator, rows), x // 10**4 % 2


def suffix(generator: np.random.Generator, rows: int) -> Planted:
    bit = generator.integers(0, 2, rows)
    ends = np.where(bit == 1, generator.choice(["son", "sen"], rows), generator.choice(["sin", "sun"], rows))
    return with_noise({"name": [text + end for text, end in zip(_words(generator, rows), ends, strict=True)]},
                      generator, rows), bit  # fmt: skip


def check_digit(generator: np.random.Generator, rows: int) -> Planted:
    """The digits add up to a multiple of ten."""
    bit, x = generator.integers(0, 2, rows), generator.integers(10**5, 10**6, rows)
    digits = sum(x // 10**i % 10 for i in range(6))
    return with_noise({"x": 10 * x + np.where(bit == 1, -digits % 10, generator.integers(0, 10, rows))},
                      generator, rows), bit  # fmt: skip


def bit_of_a_double(generator: np.random.Generator, rows: int) -> Planted:
    x = generator.normal(size=rows)
    return with_noise({"x": x}, generator, rows), (x.view(np.int64) >> 22) & 1


def zeros_in_a_row(generator: np.random.Generator, rows: int) -> Planted:
    """The parity of the number of cells that are 0, of six."""
    zero = generator.integers(0, 2, (rows, 6))
    x = np.where(zero == 1, 0.0, generator.normal(size=(rows, 6)).round(3))
    return with_noise({f"x{i}": x[:, i] for i in range(6)}, generator, rows), (x == 0).sum(axis=1) % 2


def far_from_the_center(generator: np.random.Generator, rows: int) -> Planted:
    """The norm of six numbers."""
    x = generator.normal(size=(rows, 6)).round(4)
    norm = (x**2).sum(axis=1)
    return with_noise({f"x{i}": x[:, i] for i in range(6)}, generator, rows), (norm > np.median(norm)).astype(int)


def two_hyperplanes(generator: np.random.Generator, rows: int) -> Planted:
    """On which sides of two random hyperplanes a row lies, as a locality-sensitive hash has it."""
    x, planes = generator.normal(size=(rows, 4)).round(4), generator.normal(size=(4, 2))
    return with_noise({f"x{i}": x[:, i] for i in range(4)}, generator, rows), (np.prod(x @ planes, 1) > 0).astype(int)


def largest_of_its_group(generator: np.random.Generator, rows: int) -> Planted:
    """Whether a row has the largest number of its household."""
    house, x = generator.integers(0, rows // 2, rows), generator.normal(size=rows).round(3)
    largest = pd.Series(x).groupby(house).transform("max").to_numpy() == x
    return with_noise({"house": [f"h{value}" for value in house], "x": x}, generator, rows), largest.astype(int)


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
        rare_combination, repeats_far_away, sum_of_three_modulo, sign_of_three, adds_up, is_a_total, days_between,
        rank_within_a_category, every_second_occurrence, many_codes, leading_digit, digit_within_a_code, suffix,
        check_digit, bit_of_a_double, zeros_in_a_row, far_from_the_center, two_hyperplanes, largest_of_its_group,
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
