"""ALFR, LAFTR and FFVAE (codes) and Zhang et al. (a predictor), by `fairveil.baselines`."""

from collections.abc import Callable, Iterator

from fairveil.baselines import ALFR, FFVAE, LAFTR, Zhang
from field.protocol import Fitted, Method, Output, Rows

_STEPS = 2400


def networks(kind: type[ALFR] | type[FFVAE] | type[LAFTR] | type[Zhang], weights: tuple[float, ...],
             *notion: str) -> Callable[[Rows, int], Iterator[Fitted]]:  # fmt: skip
    def fit(train: Rows, seed: int) -> Iterator[Fitted]:
        model = kind(weights, *notion, steps=_STEPS, random_state=seed)
        model.fit(train.X, train.truth, sensitive_features=train.S)
        for weight in weights:

            def apply(rows: Rows, weight: float = weight) -> Output:
                made = model.apply(rows.X)
                return Output(None if kind is Zhang else made.represent(weight),
                              None if kind is FFVAE else made.predict(weight))  # fmt: skip

            yield Fitted(f"weight {weight:g}", apply)

    return fit


_PARITY = "demographic_parity"
METHODS = [
    Method("ALFR", networks(ALFR, (1.0, 8.0, 64.0)), "Edwards and Storkey 2016", told=True),
    Method("LAFTR", networks(LAFTR, (1.0, 8.0, 64.0), _PARITY), "Madras et al. 2018", told=True),
    Method("FFVAE", networks(FFVAE, (10.0, 100.0)), "Creager et al. 2019"),
    Method("Zhang", networks(Zhang, (0.0, 0.002, 0.005, 0.01, 0.05), _PARITY), "Zhang et al. 2018", told=True),
]
