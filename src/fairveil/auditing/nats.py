"""The audit's information: the bracket of `fairveil.information`, and the paper's estimate from an embedding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from fairveil.auditing.attackers import Array, loss_of
from fairveil.auditing.inputs import Target
from fairveil.auditing.networks import Network
from fairveil.auditing.protocol import Attempt, Evidence
from fairveil.auditing.scoring import Truth, flat
from fairveil.information import mutual_information_with_error, predicted_information

#: The layer before the output (the supplement's Section `MIestimation`): small for few classes, else wide, then PCA.
_FEW_CLASSES, _SMALL, _WIDE, _COMPONENTS = 8, 8, 128, 12


def information_row(
    target: Target,
    attempts: Sequence[Attempt],
    release: Evidence,
    original: Evidence | None,
    *,
    role: str,
    epochs: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """What the release tells of a column, in nats.

    lower: H minus the log-loss on test rows of the model that did best on validation rows. embedding: k-NN information
    of the embedding, with its stated error; normalised: divided by that of the original data.
    """
    truth = Truth.of(target, release.parts)
    codes = truth.test.astype(np.int64)
    prior = np.bincount(truth.values[truth.parts.train].astype(np.int64), minlength=target.classes or 0)
    prior = prior / prior.sum()
    best = min(attempts, key=lambda attempt: loss_of(attempt.validation, truth.validation))
    row: dict[str, Any] = {"column": target.name, "role": role, "rows": len(codes),
                           "entropy": float(-np.sum(prior[prior > 0] * np.log(prior[prior > 0])))}  # fmt: skip
    row |= {**flat("lower", predicted_information(best.test, codes, prior, confidence)), "model": best.name}
    found = mutual_information_with_error(embedding(target, release, epochs, seed), codes)
    row |= {"embedding": found.value, "embedding_error": found.error}
    if original is not None:
        before = mutual_information_with_error(embedding(target, original, epochs, seed), codes).value
        row |= {"embedding_original": before, "normalised": found.value / before if before > 0 else np.nan}
    return row


def embedding(target: Target, evidence: Evidence, epochs: int, seed: int) -> Array:
    """Test rows as the layer before softmax sees them, in a network trained to tell the target."""
    images = evidence.has("images")
    view = "images" if images else "values"
    few = (target.classes or 0) <= _FEW_CLASSES
    truth = Truth.of(target, evidence.parts)
    x, y = evidence.training(view, target, target.values)
    rows: NDArray[np.float32] = evidence.view(view)
    network = Network((64, _SMALL) if few else (_WIDE, _WIDE), classes=target.classes, images=images, epochs=epochs,
                      seed=seed)  # fmt: skip
    network.fit(x, y, rows[truth.parts.validation], truth.validation)
    found = network.embed(rows[truth.parts.test])
    return found if few else np.asarray(PCA(_COMPONENTS, random_state=seed).fit_transform(found))
