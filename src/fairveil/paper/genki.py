"""GENKI: hide gender, keep the expression (Section `sec:GENKI`).

All budgets of one encoder are members of one game. As in the paper, expression networks are trained on censored images
and tested on original ones; here also on censored ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairveil as fv
from fairveil.baselines.noise import analytic_gaussian_epsilon, gaussian_epsilon, laplace_epsilon
from fairveil.datasets import ImageSplit, load_genki
from fairveil.estimators import FairEncoder
from fairveil.paper.fresh import Fresh, Sample, embedded_information, strongest
from fairveil.paper.games import measured, of_training, release_image_batch, train_members
from fairveil.paper.results import Figure, Page, Profile, Store, Table, percent

PIXELS = 256
#: The figure of censored faces.
FACES = "genki-faces.png"
#: Table `tb:genki`, as printed.
PRINTED = {
    "Laplace": {1: 5792.61, 2: 4096.0, 3: 3344.36, 4: 2896.31, 5: 2590.53, 100: 579.26, 1000: 183.17},
    "Gaussian": {1: 1918.24, 2: 1354.08, 3: 1107.57, 4: 959.18, 5: 857.76, 100: 191.82, 1000: 60.66},
}
DELTA = 1e-6
#: Tables `tb:errorFNNE` and `tb:errorTCNNE`, as printed: (false positives, false negatives) of male and female faces.
PRINTED_ERRORS = {
    "FNND": {0: ((0.04, 0.14), (0.16, 0.02)), 1: ((0.1, 0.18), (0.2, 0.08)), 3: ((0.18, 0.16), (0.26, 0.12)),
             5: ((0.16, 0.14), (0.24, 0.24))},
    "TCNND": {0: ((0.04, 0.14), (0.16, 0.02)), 1: ((0.04, 0.16), (0.2, 0.08)), 3: ((0.06, 0.12), (0.2, 0.14)),
              5: ((0.08, 0.16), (0.18, 0.16))},
}  # fmt: skip
#: The paper: at D = 5 the expression accuracy is 10 % lower than on original images.
PRINTED_LOSS = 0.10

Images = NDArray[Any]

#: The name of the first attacker in the result of `strongest`.
CNN = "network 1"
GENDERS, EXPRESSIONS = ("male", "female"), ("not smiling", "smiling")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a profile. draws: number of releases of all images; attackers own the encoder and train on several.

    rate, adversary_rate, adversary_steps, adversary, mask: of the paper's training; mask is TCNND's width. A short game
    needs a faster adversary, or a fresh one finds what it had no time to find. ours: the encoders that are also trained
    our way. lessons: pretraining steps of FNND; the paper has none, and many more steps.
    """

    budgets: tuple[float, ...]
    steps: int
    our_steps: int
    epochs: int
    starts: int
    draws: int
    rate: float
    adversary_rate: float
    adversary_steps: int
    adversary: tuple[int | str, ...]
    mask: tuple[int, int]
    ours: tuple[str, ...]
    lessons: int


#: The paper's adversary: two convolutions and two dense layers, all with batch norm.
_ADVERSARY = ("conv32", "conv64", 1024, 1024)
SIZES: dict[Profile, Sizes] = {
    "quick": Sizes((1.0, 3.0, 5.0), 500, 500, 10, 1, 2, 1e-3, 2e-3, 3, ("conv16", "conv32", 256), (64, 32), ("FNND",),
                   1000),
    "paper": Sizes((1.0, 2.0, 3.0, 4.0, 5.0), 20_000, 6000, 40, 3, 5, 2e-4, 2e-4, 1, _ADVERSARY, (256, 128),
                   ("FNND", "TCNND"), 1),
}  # fmt: skip


def encoders(sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Settings by name: the paper's two encoders with its training, and both with ours."""
    paper = fv.Training(steps=sizes.steps, batch_size=200, adversary_steps=sizes.adversary_steps,
                        learning_rate=sizes.rate, adversary_learning_rate=sizes.adversary_rate,
                        pretraining_steps=sizes.lessons, adversary_hidden=(sizes.adversary,),
                        adversary_dropout=0.0, adversary_decay=0.0, adversary_normalise=True,
                        average=0.0, final_rate=1.0, rounds=10, validation=0.05, held_out=0.1)  # fmt: skip
    ours = fv.Training(steps=sizes.our_steps, batch_size=200, adversary_steps=2, learning_rate=1e-3,
                       adversary_learning_rate=3e-3, pretraining_steps=1000, adversary_normalise=True,
                       adversary_hidden=(("conv16", "conv32", 256),), adversary_dropout=0.0, adversary_decay=0.0,
                       average=0.9, spending=0.1, rounds=10, validation=0.05, held_out=0.1)  # fmt: skip
    dense = fv.FeedForward(hidden=(256, 256, 256), noise_dim=100, normalise=True, residual=False)
    mask = fv.TransposedConv(channels=sizes.mask, normalise=True)
    penalty = fv.Penalty(rho=20.0, growth=1.1, every=2000)
    paper_setting = {"release": "probabilities", "constraint": penalty, "distortion": "squared"}
    found: dict[str, dict[str, Any]] = {
        "FNND": {"architecture": dense, "training": paper, **paper_setting},
        "TCNND": {"architecture": mask, "training": paper, **paper_setting},
    }
    for name in sizes.ours:
        found[f"{name}, ours"] = {"architecture": dense if name == "FNND" else mask, "training": ours}
    return found


@dataclass(frozen=True)
class Released:
    """Censored images: several draws of the training images and of the test images."""

    draws: list[Images]
    tests: list[Images]


def noisy(kind: str, budget: float, images: Images, seed: int) -> NDArray[np.float32]:
    """Independent noise of variance D / d per pixel, as in the paper: nothing is clipped."""
    generator, spread = np.random.default_rng(seed), np.sqrt(budget / PIXELS)
    if kind == "Laplace":
        noise = generator.laplace(0.0, spread / np.sqrt(2.0), images.shape)
    else:
        noise = generator.normal(0.0, spread, images.shape)
    return np.asarray(images + noise, dtype=np.float32)


def codes(split: ImageSplit, column: str) -> NDArray[np.float64]:
    """Gender or expression as 0 and 1."""
    names = GENDERS if column == "gender" else EXPRESSIONS
    values = split.S[column] if column in split.S else split.targets[column]
    return np.asarray(values == names[1], dtype=np.float64)


class Bench:
    """The images, and how a release of them is measured."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.train, self.test = load_genki()
        self.cnn = Fresh((256,), (32, 64), epochs=sizes.epochs, starts=sizes.starts)
        self.attackers = (self.cnn, Fresh((256, 64), epochs=sizes.epochs))
        self.embedding = Fresh((64, 8), (32, 64), epochs=sizes.epochs)

    def typical(self) -> NDArray[np.int64]:
        """Eight test faces: the first two of each gender and expression."""
        kinds = 2 * codes(self.test, "gender") + codes(self.test, "expression")
        return np.concatenate([np.flatnonzero(kinds == kind)[:2] for kind in range(4)])

    def measure(self, released: Released) -> dict[str, Any]:
        """Accuracy of fresh networks for gender and expression, error rates by gender, and embedded information."""
        many, train = np.tile(np.arange(len(self.train)), len(released.draws)), np.concatenate(released.draws)
        gender, smile = (codes(self.train, name) for name in ("gender", "expression"))
        gender_test, smile_test = (codes(self.test, name) for name in ("gender", "expression"))
        # There are only 200 test faces: results are averaged over several draws of them.
        tests = np.concatenate(released.tests)
        drawn = len(released.draws)
        hidden = Sample(train, gender[many], drawn), Sample(tests, np.tile(gender_test, len(released.tests)))
        kept = Sample(train, smile[many], drawn)
        guess, on_released = (p.argmax(axis=1) for p in self.cnn.predict(kept, [self.test.X, tests], classes=2))
        men = gender_test == 0
        negative, positive = smile_test == 0, smile_test == 1
        rates = {"false positives": [float(np.mean(guess[m & negative])) for m in (men, ~men)],
                 "false negatives": [float(np.mean(1 - guess[m & positive])) for m in (men, ~men)]}  # fmt: skip
        once = Sample(released.draws[0], gender), Sample(released.draws[0], smile)
        information = [
            embedded_information(sample, Sample(released.tests[0], truth), classes=2, embedding=self.embedding)
            for sample, truth in zip(once, (gender_test, smile_test), strict=True)
        ]
        return {
            "gender": strongest(*hidden, self.attackers, classes=2),
            "expression": float(np.mean(guess == smile_test)),
            "expression, released": float(np.mean(on_released == np.tile(smile_test, len(released.tests)))),
            **rates,
            "information": information,
            "distortion": float(np.mean([np.square(t - self.test.X).sum(axis=(1, 2)).mean() for t in released.tests])),
        }

    def trained(self, settings: dict[str, Any], checkpoint: Path, *, progress: bool) -> list[FairEncoder]:
        """All budgets in one game. A budget that is not met on held-out rows is measured anyway, and marked."""
        return train_members(self.sizes.budgets, self.train.X, self.train.S, settings, checkpoint, progress=progress)

    def of_member(self, trained: FairEncoder) -> dict[str, Any]:
        """Release, with several draws of the images, and measure."""
        draws, tests = ([release_image_batch(trained.veil_, part.X, None, 2 * draw + half)
                         for draw in range(self.sizes.draws)]
                        for half, part in enumerate((self.train, self.test)))  # fmt: skip
        return {**self.measure(Released(draws, tests)), **of_training(trained)}


def run(folder: Path, profile: Profile, tell: Callable[[str], None], *, progress: bool = True) -> Page:
    """Train, release, measure, draw."""
    sizes = SIZES[profile]
    bench = Bench(sizes)
    store = Store(
        folder / f"genki.{profile}.json", {"profile": profile, "encoders": encoders(sizes), "sizes": sizes}, tell=tell
    )
    original = store.get("original", lambda: bench.measure(Released([bench.train.X], [bench.test.X])))
    found: dict[str, dict[float, dict[str, Any]]] = {}
    lacks = not (folder / FACES).exists()
    for name, settings in encoders(sizes).items():
        keys = {budget: f"{name}, D = {budget:g}" for budget in sizes.budgets}
        train = partial(bench.trained, settings, progress=progress)
        shown = name == "FNND"
        found[name], members = measured(store, name, keys, train, bench.of_member, anew=lacks and shown)
        if members and shown:
            chosen = bench.test.take(bench.typical())
            faces = [release_image_batch(member.veil_, chosen.X, None, 0) for member in members]
            _draw_faces(folder / FACES, chosen, faces, sizes.budgets)
    for kind in ("Laplace", "Gaussian"):
        found[kind] = {}
        for budget in sizes.budgets:

            def measure(kind: str = kind, budget: float = budget) -> dict[str, Any]:
                draws, tests = ([noisy(kind, budget, part.X, 2 * seed + half) for seed in range(sizes.draws)]
                                for half, part in enumerate((bench.train, bench.test)))  # fmt: skip
                return bench.measure(Released(draws, tests))

            found[kind][budget] = store.get(f"{kind}, D = {budget:g}", measure)
    caption = "Fig. fig:privatizedimages: original faces and FNND's, by distortion."
    figures = [*_figures(folder, original, found, sizes.budgets), Figure(FACES, caption)]
    return Page(
        "genki", "GENKI: hide gender, keep the expression", _summary(original, found, sizes.budgets, profile),
        [_leakage_table(original, found), _epsilon_table(), _errors_table("FNND", original, found),
         _errors_table("TCNND", original, found)],
        figures, {"profile": profile, **encoders(sizes)}, store.seconds,
    )  # fmt: skip


def _summary(
    original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]], budgets: Sequence[float], profile: Profile
) -> list[str]:
    largest = max(budgets)
    at = {name: values[largest] for name, values in found.items()}
    gender = {name: value["gender"][CNN] for name, value in at.items()}
    lost = {name: original["expression"] - value["expression"] for name, value in at.items()}
    listed = ", ".join(f"{name} {percent(found)} ({percent(at[name]['gender']['best'])})"
                       for name, found in gender.items())  # fmt: skip
    return [
        f"Baseline on original images: gender {percent(original['gender'][CNN])} by a fresh CNN, expression "
        f"{percent(original['expression'])}; the prior of both is 50 %. 200 test images: one standard error is about "
        "3 points.",
        f"Gender by a fresh CNN at D = {largest:g}, and in brackets by the one of five fresh attackers (CNN, dense "
        f"network, trees, linear model, nearest neighbours) that did best on held-out training images: {listed}.",
        f"Expression at D = {largest:g}, trained on censored and tested on original images: FNND loses "
        f"{100 * lost['FNND']:.1f} points, TCNND {100 * lost['TCNND']:.1f}; the paper reports "
        f"{100 * PRINTED_LOSS:.0f} %.",
        "The paper's leakage is the accuracy of the training adversary, here on a few validation images. At D = "
        f"{largest:g} it is {percent(at['FNND']['training adversary'])} for FNND and "
        f"{percent(at['TCNND']['training adversary'])} for TCNND.",
        *([_quick()] if profile == "quick" else []),
    ]  # fmt: skip


def _quick() -> str:
    here, there = SIZES["quick"], SIZES["paper"]
    return (
        f"`quick` differs from the paper: {here.steps} steps with {here.adversary_steps} adversary steps each and "
        f"rates {here.rate:g} and {here.adversary_rate:g} (encoder and adversary), instead of {there.steps:,} with one "
        f"and {there.rate:g}; the adversary is {here.adversary} instead of {there.adversary}, TCNND has {here.mask} "
        f"channels instead of {there.mask}, and FNND is pretrained by {here.lessons} steps of least squares before "
        "the game."
    )


def _leakage_table(original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> Table:
    rows: list[list[object]] = [
        [
            "original",
            0,
            "",
            percent(original["gender"][CNN]),
            percent(original["gender"]["best"]),
            "",
            percent(original["expression"]),
            percent(original["expression"]),
            1.0,
            1.0,
            "",
        ]
    ]
    for name, values in found.items():
        for budget, value in values.items():
            shares = [a / b if b else None for a, b in zip(value["information"], original["information"], strict=True)]
            training = value.get("training adversary")
            rows.append([name, budget, value["distortion"], percent(value["gender"][CNN]),
                         percent(value["gender"]["best"]),
                         "" if training is None else percent(training), percent(value["expression"]),
                         percent(value["expression, released"]), *shares,
                         "" if value.get("met", True) else "bound not met on held-out images"])  # fmt: skip
    return Table(
        "Gender and expression (Fig. fig:privacyutility_mi)",
        ["mechanism", "D", "distortion", "gender, fresh CNN", "gender, best fresh attacker",
         "gender, training adversary",
         "expression on original", "expression on released", "I(gender) left", "I(expression) left", ""],
        rows,
        "Information is that of an 8-dimensional embedding, as a share of the original's; the k-NN estimate from 200 "
        "test images is coarse. The training adversary is the paper's measure, on validation images.",
    )  # fmt: skip


def _epsilon_table() -> Table:
    rows: list[list[object]] = []
    for distortion in PRINTED["Laplace"]:
        printed = [f"{PRINTED[kind][distortion]:.2f}" for kind in ("Laplace", "Gaussian")]
        rows.append([distortion, f"{laplace_epsilon(distortion, PIXELS):.2f}", printed[0],
                     f"{gaussian_epsilon(distortion, PIXELS, DELTA):.2f}", printed[1],
                     f"{analytic_gaussian_epsilon(distortion, PIXELS, DELTA):.2f}"])  # fmt: skip
    return Table(
        "Epsilon of independent noise (Table tb:genki)",
        ["D", "Laplace", "Laplace, printed", "Gaussian, its formula", "Gaussian, printed", "Gaussian, analytic"],
        rows,
        "The paper's Gaussian formula is not a guarantee (the bound it is taken from holds for epsilon below 1 and has "
        "another constant); the analytic value is exact. Some printed Gaussian values differ from the paper's own "
        "formula in the last digits.",
    )  # fmt: skip


def _errors_table(name: str, original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> Table:
    rows = []
    values = {0.0: original, **found[name]}
    for budget, value in values.items():
        printed = PRINTED_ERRORS[name].get(int(budget))
        for kind, place in (("false positives", 0), ("false negatives", 1)):
            beside = ["", ""] if printed is None else list(printed[place])
            rows.append([budget or "original", kind, *(f"{rate:.2f}" for rate in value[kind]), *beside])
    label = "tb:errorFNNE" if name == "FNND" else "tb:errorTCNNE"
    return Table(f"Errors of the expression network by gender, {name} (Table {label})",
                 ["D", "rate", "male", "female", "male, printed", "female, printed"], rows)  # fmt: skip


def _figures(
    folder: Path, original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]], budgets: Sequence[float]
) -> list[Figure]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(12, 4.6), layout="constrained")
    left, middle, right = canvas.subplots(1, 3)
    start = [0.0, *budgets]
    for i, (name, values) in enumerate(found.items()):
        style = {
            "color": f"C{i}",
            "marker": "osD^v*"[i % 6],
            "ms": 4,
            "ls": "--" if name in ("Laplace", "Gaussian") else "-",
        }
        gender = [original["gender"][CNN], *(values[b]["gender"][CNN] for b in budgets)]
        smile = [original["expression"], *(values[b]["expression"] for b in budgets)]
        left.plot(start, [100 * g for g in gender], label=name, **style)
        middle.plot(start, [100 * s for s in smile], **style)
        if name in ("FNND", "TCNND"):
            for which, ls, text in ((0, "-", "gender"), (1, ":", "expression")):
                base = original["information"][which] or 1.0
                share = [1.0, *(values[b]["information"][which] / base for b in budgets)]
                right.plot(start, share, color=f"C{i}", ls=ls, marker="o", ms=4, label=f"{name}: {text}")
    left.set(title="Gender, fresh CNN (%)", xlabel="distortion D of an image")
    middle.set(title="Expression, tested on original images (%)", xlabel="distortion D of an image")
    middle.axhline(100 * (original["expression"] - PRINTED_LOSS), color="grey", ls=":", lw=1, label="paper at D = 5")
    right.set(title="Information left (embedding, k-NN)", xlabel="distortion D of an image", ylim=(0, None))
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    canvas.savefig(folder / "genki.png", dpi=110)
    return [Figure("genki.png", "Figs. fig:genkiprivacy_util and fig:genki:mi_normed: gender, expression and "
                   "normalised information against distortion.")]  # fmt: skip


def _draw_faces(path: Path, chosen: ImageSplit, faces: Sequence[Images], budgets: Sequence[float]) -> None:
    from matplotlib.figure import Figure as Canvas

    rows = [chosen.X, *faces]
    canvas = Canvas(figsize=(1.1 * len(chosen), 1.2 * len(rows)), layout="constrained")
    grid = canvas.subplots(len(rows), len(chosen))
    for line, images, label in zip(grid, rows, ["original", *(f"D = {b:g}" for b in budgets)], strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image, cmap="gray", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(label, fontsize=9)
    for axes, gender, smile in zip(grid[0], chosen.S["gender"], chosen.targets["expression"], strict=True):
        axes.set_title(f"{gender},\n{smile}", fontsize=7)
    canvas.savefig(path, dpi=110)
