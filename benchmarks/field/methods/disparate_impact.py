"""DisparateImpactRemover: Feldman et al. (2015), by their reference code (BlackBoxAuditing).

It repairs the rows that it is given, by their own distribution in each group.
"""

from collections.abc import Iterator

import pandas as pd

from field.protocol import Fitted, Method, Output, Rows


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    for level in (0.5, 1.0):
        yield Fitted(f"level {level:g}", lambda rows, level=level: Output(repaired(rows, level)))


def repaired(rows: Rows, level: float) -> pd.DataFrame:
    """Every column moved towards its median distribution over the groups."""
    from BlackBoxAuditing.repairers.GeneralRepairer import Repairer

    names = list(rows.X)
    numbers = list(rows.X.select_dtypes("number"))
    table = rows.X.astype(dict.fromkeys(numbers, float)).astype(object).assign(S=rows.group).to_numpy().tolist()
    made = Repairer(table, len(names), level, False, features_to_ignore=[]).repair(table)
    return pd.DataFrame([row[: len(names)] for row in made], columns=names).astype(dict.fromkeys(numbers, float))


METHODS = [Method("DisparateImpactRemover", fit, "BlackBoxAuditing", sees=True, needs=("BlackBoxAuditing",))]
