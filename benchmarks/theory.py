"""How close the learned game comes to exact optima, and how fast the k-NN estimates are. `make theory`.

python benchmarks/theory.py matrix    learned transition matrices against exact channels
python benchmarks/theory.py alpha     alpha-loss games on the Gaussian mixture against water-filling
python benchmarks/theory.py knn       k-NN information against exact values; time against scikit-learn's neighbours
"""

import math
import time

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from common import run_parts
from fairveil import AlphaLoss, FairEncoder, Training
from fairveil.datasets import gaussian_mixture, load_adult
from fairveil.information import _kth_distance, knn_mutual_information, mutual_information_with_error
from fairveil.paper import gaussian as experiment
from fairveil.theory import channel
from fairveil.theory import gaussian as theory
from fairveil.theory.adversary import arimoto_information

#: A linear map of the one-hot cell is a free posterior for every cell: no adversary can do better.
MATRIX_TRAINING = Training(
    steps=2500,
    batch_size=8192,
    adversary_steps=3,
    learning_rate=0.05,
    adversary_learning_rate=0.05,
    adversary_hidden=((),),
    adversary_dropout=0.0,
    adversary_decay=0.0,
    rounds=5,
    select_after=0.9,
    final_rate=0.01,
)


def compare_matrix(frame: pd.DataFrame, secret: np.ndarray, budget: float) -> dict[str, float]:
    """Learn a matrix encoder and solve for the exact channel at the distortion it reached, on the same rows."""
    cells, codes = np.unique(frame.agg("|".join, axis=1), return_inverse=True)
    joint = np.zeros((secret.max() + 1, len(cells)))
    np.add.at(joint, (secret, codes), 1.0 / len(codes))
    combined = pd.DataFrame({"x": cells[codes]})
    encoder = FairEncoder(budget, architecture="matrix", training=MATRIX_TRAINING, verbose=False, random_state=0)
    start = time.monotonic()
    encoder.fit(combined, sensitive_features=secret)
    transition = encoder.veil_.encoder.channel()[0, 0].double().numpy()
    spent = 1.0 - float(joint.sum(0) @ np.diag(transition))
    exact = channel.information_channel(joint, 1.0 - np.eye(len(cells)), spent)
    learned = arimoto_information(joint @ transition / (joint @ transition).sum(), 1.0)
    return {
        "|X|": len(cells),
        "|S|": len(joint),
        "distortion": spent,
        "raw nats": arimoto_information(joint, 1.0),
        "exact": exact.value,
        "learned": learned,
        "relative": learned / exact.value - 1.0,
        "gap of solver": exact.gap,
        "seconds": time.monotonic() - start,
    }


def matrix() -> None:
    generator = np.random.default_rng(0)
    rows = []
    for values, classes in [(4, 2), (8, 2), (16, 3), (32, 4)]:
        joint = generator.dirichlet(np.ones(values * classes)).ravel()
        drawn = generator.choice(values * classes, 40_000, p=joint)
        frame = pd.DataFrame({"x": np.char.mod("%02d", drawn % values)})
        rows.append(compare_matrix(frame, drawn // values, 0.15))
    train, _ = load_adult("I")
    hours = pd.cut(train.X["hours-per-week"], [0, 35, 40, 50, 100], labels=list("abcd")).astype(str)
    table = pd.DataFrame({"marital": train.X["marital-status"], "hours": hours})
    rows.append(compare_matrix(table, (train.S["sex"] == "Male").to_numpy().astype(int), 0.15))
    print("\n## Learned matrix encoders against exact channels (the last row is marital-status x hours of Adult)\n")
    print(pd.DataFrame(rows).round(5).to_string(index=False), flush=True)


def alpha() -> None:
    """Noise trained against each alpha-loss: the advantage it leaves that adversary, and the least that can be left."""
    budgets = (2.0, 8.0, 32.0)
    rows = []
    for prior in experiment.PRIORS:
        mixture = gaussian_mixture(prior)
        for order in (0.5, 1.0, 2.0, math.inf):
            chance = theory.minimal_alpha_loss(0.0, prior, order)
            mechanisms = experiment.learn(mixture, "gaussian", budgets, loss=AlphaLoss(order),
                                          training=experiment.training_against(order))  # fmt: skip
            for budget, mechanism in zip(budgets, mechanisms, strict=True):
                best = theory.water_filling(mixture.mean, mixture.variance, budget)
                gammas = [theory.separation(mixture.mean, mixture.variance, p) for p in (mechanism.noise, best)]
                learned, optimum = (chance - theory.minimal_alpha_loss(gamma, prior, order) for gamma in gammas)
                accuracies = [theory.map_accuracy(gamma, prior) for gamma in gammas]
                rows.append({"alpha": order, "P(S=1)": prior, "D": budget, "spent": mechanism.distortion,
                             "learned": learned, "optimum": optimum, "relative %": 100 * (learned / optimum - 1),
                             "MAP gap %": 100 * (accuracies[0] - accuracies[1])})  # fmt: skip
    print("\n## Alpha-loss games, diagonal noise: the gain of that adversary (water-filling is optimal for all)\n")
    print(pd.DataFrame(rows).round(4).to_string(index=False), flush=True)


def knn() -> None:
    rows = []
    exact = theory.mutual_information(2.0, 0.5)
    for d in (1, 2, 4, 8, 32):
        generator = np.random.default_rng(d)
        s = generator.random(20_000) < 0.5
        mu = np.full(d, 1.0 / math.sqrt(d))
        x = np.where(s[:, None], mu, -mu) + generator.normal(size=(20_000, d))
        start = time.perf_counter()
        ours = _kth_distance(x, x, 5, same=True)
        middle = time.perf_counter()
        theirs = NearestNeighbors(n_neighbors=6, n_jobs=-1).fit(x).kneighbors(x)[0][:, 5]
        end = time.perf_counter()
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        found = mutual_information_with_error(x, s)
        rows.append({"d": d, "exact": exact, "mixed": found.value, "stated error": found.error,
                     "relative": found.value / exact - 1, "paper's": knn_mutual_information(x, s),
                     "seconds": middle - start, "scikit-learn's": end - middle})  # fmt: skip
    print("\n## k-NN information, 20,000 samples, separation 2\n")
    print(pd.DataFrame(rows).round(4).to_string(index=False), flush=True)


if __name__ == "__main__":
    run_parts(__doc__, {"matrix": matrix, "alpha": alpha, "knn": knn})
