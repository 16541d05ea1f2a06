"""Fresh models on released rows: the paper's networks, trained from scratch, and other families.

The paper reports the accuracy of the training adversary. Here it is compared with that of a fresh attacker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from fairveil.auditing.attackers import Boosting, Neighbours, linear_model
from fairveil.auditing.model import Model
from fairveil.auditing.networks import Network
from fairveil.information import mixed_mutual_information

Rows = NDArray[Any]

#: A linear attacker is used up to this many classes and values per row.
_FEW, _NARROW = 10, 1024


@dataclass(frozen=True)
class Sample:
    """Released rows with the codes (or numbers) to be predicted from them.

    draws: how many releases of the same rows are stacked here.
    """

    x: Rows
    y: NDArray[np.float64]
    draws: int = 1

    def features(self) -> NDArray[np.float32]:
        """Images as (rows, channels, height, width) in [0, 1], tables unchanged."""
        x = self.x.astype(np.float32) / (255.0 if self.x.dtype == np.uint8 else 1.0)
        if x.ndim == 3:
            return x[:, None]
        return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if x.ndim == 4 else x


@dataclass(frozen=True)
class Fresh:
    """The configuration of a fresh model: the paper's network for the data.

    hidden: dense layers; filters: of the preceding convolutions (images only).
    """

    hidden: tuple[int, ...]
    filters: tuple[int, ...] = ()
    epochs: int = 20
    batch: int = 128
    rate: float = 1e-3
    #: Networks with different initial weights; their probabilities are averaged.
    starts: int = 1

    def predict(self, train: Sample, tests: Sequence[Rows], *, classes: int | None, seed: int = 0) -> list[Rows]:
        """Probabilities (rows, classes), or numbers, for several sets of rows (early stopping on a tenth)."""
        x = train.features()
        held, kept = _tenth(train, seed)
        model = Several(self, classes, seed).fit(x[kept], train.y[kept], x[held], train.y[held])
        return [model.predict(Sample(rows, train.y).features()) for rows in tests]

    def network(self, classes: int | None, seed: int) -> Network:
        """One unfitted network."""
        return Network(self.hidden, classes=classes, filters=self.filters, epochs=self.epochs, batch=self.batch,
                       rate=self.rate, patience=max(4, self.epochs // 4), seed=seed)  # fmt: skip


class Several:
    """Several networks with different initial weights; their outputs are averaged."""

    def __init__(self, fresh: Fresh, classes: int | None, seed: int) -> None:
        self.networks = [fresh.network(classes, seed + 1000 * start) for start in range(fresh.starts)]

    def fit(self, x: Rows, y: Rows, x_val: Rows, y_val: Rows, draws: int = 1) -> Self:
        """Fit each network."""
        for network in self.networks:
            network.fit(x, y, x_val, y_val)
        return self

    def predict(self, x: Rows) -> Rows:
        """The mean."""
        return np.asarray(np.mean([network.predict(x) for network in self.networks], axis=0))


def strongest(
    train: Sample, test: Sample, networks: Sequence[Fresh], *, classes: int, seed: int = 0
) -> dict[str, float]:
    """Accuracy of each fresh attacker on released test rows: networks, trees, nearest neighbours, a linear model.

    `best` is the one with the highest accuracy on a tenth of the training rows, scored once on the test rows. With many
    classes or values there is no linear model: it would take longer than all others together, and finds less.
    """
    x, z = train.features(), test.features()
    held, kept = _tenth(train, seed)
    flat, flat_test = x.reshape(len(x), -1), z.reshape(len(z), -1)
    models: list[tuple[str, Model, NDArray[np.float32], NDArray[np.float32]]] = []
    for number, fresh in enumerate(networks):
        inputs = (x, z) if fresh.filters else (flat, flat_test)
        models.append((f"network {number + 1}", Several(fresh, classes, seed), *inputs))
    # One more class is one more tree, and a tree on a sample of the columns is as good here as one on all of them.
    trees = Boosting(classes, 15, 0.1, 200 if classes <= _FEW else 100, seed, share=min(1.0, 64 / flat.shape[1]))
    models.append(("trees", trees, flat, flat_test))
    if classes <= _FEW and flat.shape[1] <= _NARROW:
        models.append(("linear", linear_model(classes, 0.1, seed), flat, flat_test))
    models.append(("neighbours", Neighbours(classes, (1, 5, 20), 20_000, seed), flat, flat_test))
    found, judged = {}, {}
    for name, model, rows, unseen in models:
        model.fit(rows[kept], train.y[kept], rows[held], train.y[held])
        judged[name] = float(np.mean(model.predict(rows[held]).argmax(axis=1) == train.y[held]))
        found[name] = float(np.mean(model.predict(unseen).argmax(axis=1) == test.y))
    return {"best": found[max(judged, key=lambda name: judged[name])], **found}


def embedded_information(train: Sample, test: Sample, *, classes: int, embedding: Fresh, components: int | None = None,
                         seed: int = 0) -> float:  # fmt: skip
    """I(embedding; label) in nats on test rows: the layer before softmax of a fresh network (Section `MIestimation`).

    components: number of principal components kept of a wide embedding.
    """
    x = train.features()
    held, kept = _tenth(train, seed)
    network = embedding.network(classes, seed).fit(x[kept], train.y[kept], x[held], train.y[held])
    found = network.embed(test.features())
    if components is not None:
        found = PCA(min(components, found.shape[1]), random_state=seed).fit_transform(found)
    return max(mixed_mutual_information(found, test.y.astype(np.int64)), 0.0)


def _tenth(sample: Sample, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A tenth of the rows, for early stopping and selection, and the others.

    All draws of a row are on one side: otherwise a held-out draw's nearest neighbour would be another draw of its row.
    """
    rows = len(sample.x) // sample.draws
    order = np.random.default_rng(seed).permutation(rows)
    every = order + rows * np.arange(sample.draws)[:, None]
    return every[:, : rows // 10].ravel(), every[:, rows // 10 :].ravel()
