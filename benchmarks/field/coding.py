"""Tables as vectors, for methods and models that need numbers."""

import numpy as np
import pandas as pd

#: Categories of fewer training rows share one slot.
_RARE = 5


class Vectors:
    """Numbers standardised, categories one-hot, as learned from training rows. Unknown categories share a slot."""

    def __init__(self, train: pd.DataFrame) -> None:
        self.numbers = [name for name in train if pd.api.types.is_numeric_dtype(train[name])]
        filled = train[self.numbers].astype(float)
        self.centre = filled.median()
        self.spread = filled.std().replace(0.0, 1.0).fillna(1.0)
        counts = {name: train[name].astype(str).value_counts() for name in train if name not in self.numbers}
        self.levels = {name: sorted(count.index[count >= _RARE]) for name, count in counts.items()}

    def __call__(self, table: pd.DataFrame) -> np.ndarray:
        """(rows, width) in double precision."""
        numbers = (table[self.numbers].astype(float).fillna(self.centre) - self.centre) / self.spread
        parts = [numbers.to_numpy()]
        for name, levels in self.levels.items():
            text = table[name].astype(str).to_numpy()
            parts.append((text[:, None] == np.array(levels, dtype=str)[None, :]).astype(float))
            parts.append(~parts[-1].any(axis=1, keepdims=True) * 1.0)
        return np.hstack(parts)


def codes(train: pd.DataFrame, *others: pd.DataFrame, bins: int = 12) -> list[np.ndarray]:
    """Every column as small whole numbers: categories by their training frequency, numbers in quantile bins."""
    made: list[list[np.ndarray]] = [[] for _ in range(1 + len(others))]
    for name in train:
        column = train[name]
        if pd.api.types.is_numeric_dtype(column):
            edges = np.unique(np.nanquantile(column.astype(float), np.linspace(0, 1, bins + 1)[1:-1]))
            for i, table in enumerate((train, *others)):
                made[i].append(np.searchsorted(edges, table[name].astype(float).to_numpy(), side="right"))
        else:
            known = {value: code for code, value in enumerate(column.astype(str).value_counts().index[:40])}
            for i, table in enumerate((train, *others)):
                made[i].append(table[name].astype(str).map(known).fillna(len(known)).astype(int).to_numpy())
    return [np.stack(columns, axis=1).astype(np.float32) for columns in made]
