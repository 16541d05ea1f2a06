"""The form of texts as numeric features: S may leak in how a text is written, or in any part of it."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

#: Hash buckets for the words, pairs and triples of letters of text columns with many distinct values; and for their
#: first and last letters.
_WORDS, _PAIRS, _TRIPLES, _ENDS = 128, 64, 128, 64
#: Letters at the start and at the end of a text whose codes are features of their own.
_FIRST, _LAST = 12, 3


def text_shape(column: pa.ChunkedArray) -> Matrix:
    """For texts with many distinct values: `text_form`, hashed words, letter pairs and triples, first and last letters,
    and the letters at each place.
    """
    return _per_value(column, lambda texts: np.hstack([_form(texts), _hashes(texts), _letters(texts)]))


def text_form(column: pa.ChunkedArray) -> Matrix:
    """The form of each text: its length, words, first and last letter, capitals, digits, spaces and zeros."""
    return _per_value(column, _form)


def _per_value(column: pa.ChunkedArray, features: Callable[[list[str]], Matrix]) -> Matrix:
    """Features of each distinct text, for each row; missing cells are empty texts."""
    coded = column.combine_chunks().fill_null("").dictionary_encode()
    found: Matrix = features(coded.dictionary.to_pylist())[coded.indices.to_numpy(zero_copy_only=False)]
    return found


def _form(texts: list[str]) -> Matrix:
    out = np.zeros((len(texts), 16), dtype=np.float32)
    for row, text in enumerate(texts):
        if text:
            words = len(text.split())
            capitals, digits = sum(map(str.isupper, text)), sum(map(str.isdigit, text))
            out[row] = (
                len(text), len(text) % 2, words, words % 2, ord(text[0]) % 256, ord(text[-1]) % 256, capitals,
                text[0].isupper(), digits, digits % 2, text != text.strip(), "  " in text, text[-1] == "0",
                "." in text, "e" in text.lower(), sum(not letter.isascii() for letter in text),
            )  # fmt: skip
    return out


def _hashes(texts: list[str]) -> Matrix:
    starts = np.cumsum([0, _PAIRS, _WORDS, _TRIPLES, _ENDS, _ENDS])
    _, words, triples, first, last = starts[:-1]
    out = np.zeros((len(texts), starts[-1]), dtype=np.float32)
    for row, text in enumerate(texts):
        if text:
            for one, two in pairwise(text):
                out[row, (31 * ord(one) + ord(two)) % _PAIRS] += 1.0
            for one, two, three in zip(text, text[1:], text[2:], strict=False):
                out[row, triples + (961 * ord(one) + 31 * ord(two) + ord(three)) % _TRIPLES] = 1.0
            for word in text.split():
                out[row, words + _hashed(word.lower()) % _WORDS] = 1.0
            out[row, first + _hashed(text[:3]) % _ENDS] = 1.0
            out[row, last + _hashed(text[-3:]) % _ENDS] = 1.0
    return out


def _letters(texts: list[str]) -> Matrix:
    """The code of the letter at each place from the start and from the end, and its parity."""
    codes = np.zeros((len(texts), _FIRST + _LAST), dtype=np.float32)
    for row, text in enumerate(texts):
        start, end = text[:_FIRST], text[: -_LAST - 1 : -1]
        codes[row, : len(start)] = [ord(letter) % 256 for letter in start]
        codes[row, _FIRST : _FIRST + len(end)] = [ord(letter) % 256 for letter in end]
    return np.hstack([codes, codes % 2])


def _hashed(word: str) -> int:
    """A hash that is the same in every process (FNV-1a)."""
    value = 2_166_136_261
    for letter in word:
        value = (value ^ ord(letter)) * 16_777_619 % 2**32
    return value
