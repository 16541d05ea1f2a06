"""Other ways to the same end, on the same rows, by the same fresh models: UCI Adult, case I. `make peers`.

python benchmarks/peers.py [--picture docs/peers.png]

Every method releases the training and the test rows; a fresh LightGBM learns sex, and another one salary, from the
released training rows, and both are scored once on the released test rows. Methods that give predictions and no data
are scored on those. "told" means told the task (salary). AIF360 and LEACE need the extra `peers`; what is absent or
fails is named, with the reason.
"""

import argparse
import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import fairveil as fv
from fairveil.auditing import probe
from fairveil.datasets import load_adult
from fairveil.metrics import demographic_parity_gap, equalized_odds_gap
from fairveil.paper.adult import NETWORK, TRAINING

#: Prototype methods learn from this many rows: on all of them fairlearn's takes many minutes.
SOME_ROWS = 1500


@dataclass(frozen=True)
class Release:
    """What a method hands on: two tables, or the predicted salary of the test rows."""

    setting: str
    train: pd.DataFrame | None = None
    test: pd.DataFrame | None = None
    predicted: np.ndarray | None = None


class Adult:
    """The rows as every method wants them."""

    def __init__(self) -> None:
        self.train, self.test = load_adult("I")
        both = pd.concat([self.train.X, self.test.X], ignore_index=True)
        coded = pd.get_dummies(both, dtype=float)
        standard = (coded - coded[: len(self.train)].mean()) / coded[: len(self.train)].std().replace(0.0, 1.0)
        self.numbers = standard[: len(self.train)], standard[len(self.train) :].reset_index(drop=True)
        # In the geometry of the distortion: a changed category is at squared distance 1, a number in deviations.
        text = [name for name in coded if "_" in name]
        scaled = standard.assign(**{name: coded[name] / np.sqrt(2.0) for name in text})
        self.scaled = scaled[: len(self.train)], scaled[len(self.train) :].reset_index(drop=True)
        self.man = [(part.S["sex"] == "Male").to_numpy().astype(int) for part in (self.train, self.test)]
        self.salary = [part.targets["salary"].to_numpy() for part in (self.train, self.test)]
        self.some = np.random.default_rng(0).permutation(len(self.train))[:SOME_ROWS]


def frames(*arrays: np.ndarray) -> list[pd.DataFrame]:
    return [pd.DataFrame(a, columns=[f"c{i}" for i in range(a.shape[1])]) for a in arrays]


def original(adult: Adult) -> Iterator[Release]:
    yield Release("", adult.train.X, adult.test.X)


def correlation_remover(adult: Adult) -> Iterator[Release]:
    from fairlearn.preprocessing import CorrelationRemover

    for alpha in (0.5, 1.0):
        parts = [x.assign(man=man) for x, man in zip(adult.numbers, adult.man, strict=True)]
        remover = CorrelationRemover(sensitive_feature_ids=["man"], alpha=alpha).fit(parts[0])
        yield Release(f"alpha {alpha:g}", *frames(*(np.asarray(remover.transform(part)) for part in parts)))


def leace(adult: Adult) -> Iterator[Release]:
    import torch
    from concept_erasure import LeaceEraser

    rows = [torch.from_numpy(x.to_numpy()) for x in adult.numbers]
    eraser = LeaceEraser.fit(rows[0], torch.from_numpy(adult.man[0].astype(float))[:, None])
    yield Release("", *frames(*(eraser(x).numpy() for x in rows)))


def prototypes(adult: Adult) -> Iterator[Release]:
    from fairlearn.preprocessing import PrototypeRepresentationLearner

    for weight in (1.0, 20.0):
        learner = PrototypeRepresentationLearner(5, 0.01, 1.0, weight, random_state=0, max_iter=40)
        learner.fit(adult.numbers[0].iloc[adult.some], adult.salary[0][adult.some],
                    sensitive_features=adult.man[0][adult.some])  # fmt: skip
        yield Release(f"fairness {weight:g}", *frames(*(learner.transform(x) for x in adult.numbers)))


def lfr(adult: Adult) -> Iterator[Release]:
    datasets = importlib.import_module("aif360.datasets")
    preprocessing = importlib.import_module("aif360.algorithms.preprocessing")

    def wrap(part: int, index: np.ndarray | slice):
        table = adult.numbers[part].iloc[index].assign(man=adult.man[part][index], salary=adult.salary[part][index])
        return datasets.BinaryLabelDataset(df=table.astype(float), label_names=["salary"],
                                           protected_attribute_names=["man"])  # fmt: skip

    for fairness in (10.0, 50.0):
        model = preprocessing.LFR([{"man": 0}], [{"man": 1}], k=10, Ax=0.01, Ay=1.0, Az=fairness, seed=0)
        model.fit(wrap(0, adult.some), maxiter=2000, maxfun=20_000)
        out = [np.delete(d.features, d.feature_names.index("man"), axis=1)
               for d in (model.transform(wrap(part, slice(None))) for part in (0, 1))]  # fmt: skip
        yield Release(f"Az {fairness:g}", *frames(*out))


def disparate_impact_remover(adult: Adult) -> Iterator[Release]:
    from BlackBoxAuditing.repairers.GeneralRepairer import Repairer

    names = list(adult.train.X)
    for level in (0.5, 1.0):
        tables = []
        for part in (adult.train, adult.test):
            rows = part.X.assign(sex=part.S["sex"]).astype(object).to_numpy().tolist()
            repaired = Repairer(rows, len(names), level, False, features_to_ignore=[]).repair(rows)
            table = pd.DataFrame([row[: len(names)] for row in repaired], columns=names)
            tables.append(table.astype(dict.fromkeys(part.X.select_dtypes("number"), float)))
        yield Release(f"level {level:g}", *tables)


def adversarial_classifier(adult: Adult) -> Iterator[Release]:
    from fairlearn.adversarial import AdversarialFairnessClassifier

    for alpha in (0.3, 1.0, 3.0):
        model = AdversarialFairnessClassifier(backend="torch", predictor_model=[128, "leaky_relu"],
                                              adversary_model=[64, "leaky_relu"], alpha=alpha, epochs=15,
                                              batch_size=512, shuffle=True, random_state=0)  # fmt: skip
        model.fit(adult.numbers[0].to_numpy(), adult.salary[0], sensitive_features=adult.man[0])
        predicted = np.asarray(model.predict(adult.numbers[1].to_numpy())).ravel()
        yield Release(f"alpha {alpha:g}", predicted=predicted.astype(int))


def noise(kind: str) -> Callable[[Adult], Iterator[Release]]:
    def release(adult: Adult) -> Iterator[Release]:
        for distortion in (1.0, 2.0, 8.0):
            generator = np.random.default_rng(0)
            spread = np.sqrt(distortion / adult.scaled[0].shape[1])
            draws = [generator.laplace(0.0, spread / np.sqrt(2.0), x.shape) if kind == "Laplace"
                     else generator.normal(0.0, spread, x.shape) for x in adult.scaled]  # fmt: skip
            tables = (x.to_numpy() + draw for x, draw in zip(adult.scaled, draws, strict=True))
            yield Release(f"distortion {distortion:g}", *frames(*tables))

    return release


def paper_setting(adult: Adult) -> Iterator[Release]:
    schema = fv.Schema.infer(adult.train.X, scale="range", fewest=1)
    for budget in (1.0, 3.0):
        encoder = fv.FairEncoder(
            {"categorical": budget, "continuous": 0.05},
            architecture=NETWORK,
            schema=schema,
            release="probabilities",
            constraint="penalty",
            training=replace(TRAINING, steps=1000),
            random_state=0,
            verbose=False,
        )
        encoder.fit(adult.train.X, sensitive_features=adult.train.S)
        yield Release(f"{budget:g} nats", encoder.transform(adult.train.X), encoder.transform(adult.test.X))


def ours(adult: Adult) -> Iterator[Release]:
    budgets = [0.7, 1.1, 1.4, 1.8]
    frontier = fv.FairFrontier(fv.FairEncoder(sees_sensitive=True, random_state=0, verbose=False), budgets)
    frontier.fit(adult.train.X, sensitive_features=adult.train.S)
    for budget in budgets:
        encoder = frontier.at(budget)
        yield Release(f"budget {budget:g}", *(encoder.transform(part.X, sensitive_features=part.S)
                                             for part in (adult.train, adult.test)))  # fmt: skip


#: Name, whether it is told the task, and what makes its releases.
METHODS: list[tuple[str, bool, Callable[[Adult], Iterator[Release]]]] = [
    ("original data", False, original),
    ("fairlearn CorrelationRemover", False, correlation_remover),
    ("LEACE", False, leace),
    ("DisparateImpactRemover", False, disparate_impact_remover),
    ("Laplace noise", False, noise("Laplace")),
    ("Gaussian noise", False, noise("Gaussian")),
    ("fairlearn prototypes", True, prototypes),
    ("AIF360 LFR", True, lfr),
    ("fairlearn adversarial classifier", True, adversarial_classifier),
    ("paper's setting (soft vectors)", False, paper_setting),
    ("fairveil", False, ours),
]

#: Peers of which there is no adapter here, with the reason; they are rows of the table all the same.
NOT_RUN = {"AIF360 AdversarialDebiasing": "needs TensorFlow 1 sessions, which no environment of ours had"}


def scored(adult: Adult, release: Release) -> dict[str, float]:
    """Sex and salary as fresh models find them in a release."""
    groups, truth = adult.test.S["sex"].to_numpy(), adult.salary[1]
    if release.train is None or release.test is None:
        assert release.predicted is not None
        sex: dict[str, float] = {}
        predicted = release.predicted
    else:
        found = probe(release.train, adult.train.S["sex"], release.test, groups)
        assert found.auc is not None
        sex = {"sex": found.accuracy.value, "sex AUC": found.auc.value}
        predicted = probe(release.train, adult.salary[0], release.test, truth).predicted
    odds = equalized_odds_gap(predicted, truth, groups)
    return {**sex, "salary": float((predicted == truth).mean()),
            "ΔDemP": demographic_parity_gap(predicted, groups).largest().value,
            "ΔEO": odds.largest().value}  # fmt: skip


def table_of(adult: Adult) -> pd.DataFrame:
    rows = []
    for name, told, method in METHODS:
        start = time.monotonic()
        try:
            for release in method(adult):
                seconds = time.monotonic() - start
                rows.append({"method": name, "setting": release.setting, "told": "yes" if told else "no",
                             **scored(adult, release), "seconds": round(seconds, 1), "failure": ""})  # fmt: skip
                print({k: v if isinstance(v, str) else round(v, 4) for k, v in rows[-1].items() if v != ""}, flush=True)
                start = time.monotonic()
        except Exception as error:  # a peer that fails is a row of the table, whatever its reason
            reason = f"{type(error).__name__}: {str(error).splitlines()[0][:90] if str(error) else ''}"
            rows.append({"method": name, "setting": "", "told": "yes" if told else "no", "failure": reason})
            print(f"{name}: {reason}", flush=True)
    rows += [{"method": name, "told": "yes", "failure": f"not run: {why}"} for name, why in NOT_RUN.items()]
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Salary accuracy against what is found of sex, and against ΔDemP: up and to the left is better."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), constrained_layout=True)
    scores = table[table["failure"] == ""]
    for i, (name, rows) in enumerate(scores.groupby("method", sort=False)):
        style = {"marker": "o*sDv^<>PXhd"[i % 12], "color": f"C{i % 10}", "ms": 6, "lw": 1}
        if name == "fairveil":
            style |= {"color": "black", "ms": 7, "lw": 2}
        for axis, x in zip(axes, ("ΔDemP", "sex AUC"), strict=True):
            label = name if axis is axes[0] else None
            axis.plot(rows[x], 100 * rows["salary"], label=label, **style)
            axis.set_ylim(76, 88.5)  # a peer that fails falls out of the picture, not out of the table
    axes[0].set(xlim=(0.0, 0.2), xlabel="ΔDemP of salary", ylabel="salary accuracy (%)", title="Fairness of the task")
    axes[1].set(xlabel="AUC of a fresh attacker on sex", title="What the released data still says of sex")
    axes[1].axvline(0.5, color="grey", lw=0.8, ls=":")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="where to draw the comparison")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    results = table_of(Adult())
    print("\n## UCI Adult, case I, test rows, one seed\n")
    print(results.round(3).fillna("").to_string(index=False))
    if given.picture is not None:
        draw(results, given.picture)
