"""UTKFace: hide gender in faces, keep ethnicity and age (Section "Illustration of Results for UTKFace Dataset").

Distortion is the mean square over all values of an image, as in the paper. The paper uses a VGG16 pretrained on
ImageNet for the ethnicity; here a small network with the same head is trained from scratch, unless weights are given
(`fairveil.paper.vgg`).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import fairveil as fv
from fairveil.datasets import ImageSplit, load_utkface
from fairveil.datasets.utkface import AGES, ETHNICITIES, GENDERS
from fairveil.estimators import FairEncoder
from fairveil.metrics import absolute_error_cdf, demographic_parity_gap
from fairveil.paper.fresh import Fresh, Sample, strongest
from fairveil.paper.games import measured, of_training, release_image_batch, train_members
from fairveil.paper.results import Figure, Page, Profile, Store, Table, percent
from fairveil.paper.vgg import WEIGHTS, vgg_features

Images = NDArray[Any]

FOUR = ETHNICITIES[:4]
#: Table `tab:my_label`, as printed: ΔDemP of each ethnicity by distortion.
PRINTED_DISTORTIONS = (0.0, 0.003, 0.0045, 0.005, 0.006, 0.007, 0.008, 0.01)
PRINTED_GAPS = {
    "White": (0.061, 0.055, 0.04, 0.03, 0.03, 0.02, 0.02, 0.01),
    "Black": (0.109, 0.021, 0.02, 0.05, 0.03, 0.05, 0.03, 0.03),
    "Asian": (0.14, 0.082, 0.07, 0.07, 0.06, 0.07, 0.06, 0.03),
    "Indian": (0.031, 0.006, 0.01, 0.0, 0.01, 0.0, 0.01, 0.01),
}
#: As printed, on original images and at distortion 0.01: gender, ethnicity (above 74 %, 14 % below its baseline), mean
#: absolute error of age (years), ΔDemP of both tasks.
PRINTED = {"gender": (0.94, 0.62), "ethnicity": (0.88, 0.74), "age": (7.2, 8.7), "ΔDemP ethnicity": (0.14, 0.03),
           "ΔDemP age": (0.046, 0.015)}  # fmt: skip
_ERRORS = np.arange(0, 41)
BLUR = "Blur (control, no game)"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a profile. faces: how many train fresh networks; width: channels of the autoencoder.

    rate, adversary_rate: of the paper's training.
    """

    side: int
    budgets: tuple[float, ...]
    steps: int
    lessons: int
    width: tuple[int, int, int, int]
    noise: int
    adversary_steps: int
    faces: int
    epochs: int
    age: Fresh
    batch: int
    rate: float
    adversary_rate: float


SIZES: dict[Profile, Sizes] = {
    "quick": Sizes(32, (0.008, 0.01), 500, 6000, (16, 32, 32, 32), 16, 3, 5000, 5,
                   Fresh((128, 64), (32, 32), epochs=5), 32, 3e-4, 1e-3),
    "paper": Sizes(64, PRINTED_DISTORTIONS[1:], 5600, 20_000, (128, 64, 64, 64), 4096, 20, 20_000, 30,
                   Fresh((512, 128), (128, 64, 32), epochs=30), 128, 1e-4, 2e-4),
}  # fmt: skip


def encoders(sizes: Sizes) -> dict[str, dict[str, Any]]:
    """Settings by name: the paper's noisy autoencoder with its training, and with ours."""
    network = fv.NoisyAutoencoder(channels=sizes.width, noise_dim=sizes.noise)
    paper = fv.Training(steps=sizes.steps, pretraining_steps=sizes.lessons, batch_size=sizes.batch,
                        adversary_steps=sizes.adversary_steps, learning_rate=sizes.rate,
                        adversary_learning_rate=sizes.adversary_rate,
                        adversary_hidden=(("conv20", "conv40", 40),),
                        adversary_dropout=0.0, adversary_decay=0.0, average=0.0, final_rate=0.2, rounds=8,
                        validation=0.03, held_out=0.05)  # fmt: skip
    ours = fv.Training(steps=sizes.steps, pretraining_steps=sizes.lessons, batch_size=sizes.batch, adversary_steps=3,
                       learning_rate=4e-4, adversary_learning_rate=1e-3,
                       adversary_hidden=(("conv20", "conv40", 40),), adversary_decay=0.1, rounds=8, validation=0.03,
                       held_out=0.05)  # fmt: skip
    return {
        "NAED": {"architecture": network, "training": paper, "release": "probabilities",
                 "constraint": fv.Penalty(rho=10.0, growth=1.5, every=200), "distortion": "squared"},
        "NAED that sees S, ours": {"architecture": network, "training": ours, "sees_sensitive": True,
                                   "constraint": fv.AugmentedLagrangian(rho=20.0, rate=0.05)},
    }  # fmt: skip


class Bench:
    """The faces, and how a release of them is measured."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.train, self.test = load_utkface(sizes.side)
        self.some = self.train.take(np.arange(min(sizes.faces, len(self.train))))
        self.cnn = Fresh((128,), (32, 64), epochs=sizes.epochs)
        self.weights = os.environ.get(WEIGHTS)

    @property
    def values(self) -> int:
        """Number of values per image."""
        return 3 * self.sizes.side**2

    def measure(self, train: Images, test: Images) -> dict[str, Any]:
        """Gender by the best of several fresh attackers; ethnicity and age, with ΔDemP, and the errors of age."""
        gender, men = (_codes(part, "gender", GENDERS) for part in (self.some, self.test))
        ethnicity, truth = (_codes(part, "ethnicity", FOUR) for part in (self.some, self.test))
        ages, age = (part.targets["age"].to_numpy(dtype=np.float64) for part in (self.some, self.test))
        found = strongest(Sample(train, gender), Sample(test, men), [self.cnn], classes=2)
        told = self.ethnicities(train, ethnicity, test)
        [years] = self.sizes.age.predict(Sample(train, ages), [test], classes=None)
        groups = np.array(GENDERS)[men.astype(int)]
        parity = demographic_parity_gap(np.array(FOUR)[told], groups, resamples=100).by_value
        rounded = np.clip(np.round(years), *AGES).astype(int)
        by_age = demographic_parity_gap(rounded, groups, resamples=20).by_value
        return {
            "gender": found["best"],
            "attackers": found,
            "ethnicity": float(np.mean(told == truth)),
            "age": float(np.mean(np.abs(years - age))),
            "ΔDemP ethnicity": dict(zip(parity["y"].tolist(), parity["gap"].tolist(), strict=True)),
            "ΔDemP age": {int(y): g for y, g in zip(by_age["y"].tolist(), by_age["gap"].tolist(), strict=True)},
            "errors": absolute_error_cdf(years, age, _ERRORS)["share"].tolist(),
        }

    def ethnicities(self, train: Images, truth: NDArray[np.float64], test: Images) -> NDArray[np.int64]:
        """With the paper's head, 256 and dropout, on a small network, or on VGG16 if its weights are given."""
        if self.weights:
            features = [vgg_features(images, Path(self.weights)) for images in (train, test)]
            [chances] = Fresh((256,), epochs=self.sizes.epochs).predict(Sample(features[0], truth), features[1:],
                                                                        classes=len(FOUR))  # fmt: skip
        else:
            head = Fresh((256,), (32, 64), epochs=self.sizes.epochs)
            [chances] = head.predict(Sample(train, truth), [test], classes=len(FOUR))
        return np.asarray(chances.argmax(axis=1))

    def trained(self, settings: dict[str, Any], checkpoint: Path, *, progress: bool) -> list[FairEncoder]:
        """All distortions in one game."""
        budgets = [round(b * self.values, 4) for b in self.sizes.budgets]
        return train_members(budgets, self.train.X, self.train.S, settings, checkpoint, progress=progress)

    def of_member(self, trained: FairEncoder) -> dict[str, Any]:
        """Release the faces and measure."""
        releases: list[Images] = [release_image_batch(trained.veil_, part.X, part.S, i)
                                  for i, part in enumerate((self.some, self.test))]  # fmt: skip
        train, test = releases
        changed = _distortion(test, self.test.X)
        return {**self.measure(train, test), **of_training(trained), "distortion": changed}

    def measure_blur(self, distortion: float) -> dict[str, Any]:
        """The same with all faces blurred equally, to the same distortion: the effect of mere lack of sharpness."""
        few = self.some.X[:500]
        low, high = 0.0, float(self.sizes.side)
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if _distortion(_blurred(few, middle), few) < distortion else (low, middle)
        train, test = (_blurred(part.X, low) for part in (self.some, self.test))
        return {**self.measure(train, test), "distortion": _distortion(test, self.test.X)}

    def typical(self) -> NDArray[np.int64]:
        """Sixteen test faces: each gender and ethnicity, a younger and an older one."""
        found: list[int] = []
        age = self.test.targets["age"].to_numpy()
        for gender in GENDERS:
            for ethnicity in FOUR:
                same = np.flatnonzero((self.test.S["gender"] == gender) & (self.test.targets["ethnicity"] == ethnicity))
                order = same[np.argsort(age[same], kind="stable")]
                found += [int(order[len(order) // 5]), int(order[9 * len(order) // 10])]
        return np.array(found)


def _distortion(images: Images, original: Images) -> float:
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    return float(np.square(images / scale - original / 255.0).mean())


def _blurred(images: Images, spread: float) -> Images:
    soft: Images = gaussian_filter(images.astype(np.float32), (0, spread, spread, 0))
    return np.asarray(np.rint(soft.clip(0, 255)), dtype=np.uint8)


def _codes(part: ImageSplit, column: str, names: Sequence[str]) -> NDArray[np.float64]:
    values = part.S[column] if column in part.S else part.targets[column]
    return np.asarray(values.map({name: i for i, name in enumerate(names)}), dtype=np.float64)


def run(folder: Path, profile: Profile, tell: Callable[[str], None], *, progress: bool = True) -> Page:
    """Train, release, measure, draw."""
    sizes = SIZES[profile]
    bench = Bench(sizes)
    settings = {"profile": profile, "encoders": encoders(sizes), "sizes": sizes, "VGG16": bool(bench.weights)}
    store = Store(folder / f"utkface.{profile}.json", settings, tell=tell)
    original = store.get("original", lambda: bench.measure(bench.some.X, bench.test.X))
    found: dict[str, dict[float, dict[str, Any]]] = {}
    figures = []
    for name, chosen in encoders(sizes).items():
        keys = {budget: f"{name}, {budget:g} a pixel" for budget in sizes.budgets}
        file = f"utkface-faces-{'paper' if name == 'NAED' else 'ours'}.png"
        train = partial(bench.trained, chosen, progress=progress)
        lacks = not (folder / file).exists()
        found[name], members = measured(store, name, keys, train, bench.of_member, anew=lacks)
        if members:
            _draw_faces(folder / file, bench, members)
        figures.append(Figure(file, f"Fig. fig:GAP_UTK, {name}: sixteen faces at increasing distortion."))
    blurred = {}
    for budget in sizes.budgets:
        # As much as the encoder that changed the test faces most.
        spent = max(values[budget]["distortion"] for values in found.values())
        blurred[budget] = store.get(f"{BLUR}, {budget:g} a pixel", partial(bench.measure_blur, spent))
    found[BLUR] = blurred
    _draw(folder / "utkface.png", original, found)
    _draw_ages(folder / "utkface-ages.png", original, found)
    curves = [
        Figure("utkface.png", "Figs. fig:UTK_race, fig:UTK_age_censor and fig:UTK_age_fair: ethnicity and age against "
               "gender and against ΔDemP."),
        Figure("utkface-ages.png", "Figs. fig:UTK_age_cdf and fig:UTK_age_DemPdetail: errors of age, and ΔDemP(y) over "
               "ages."),
    ]  # fmt: skip
    return Page(
        "utkface", "UTKFace: hide gender, keep ethnicity and age", _summary(original, found, bench, profile),
        [_table(original, found), _parity_table(original, found)], [*curves, *figures], settings, store.seconds,
    )  # fmt: skip


def _summary(
    original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]], bench: Bench, profile: Profile
) -> list[str]:
    lines = [
        f"Baseline on original faces: gender {percent(original['gender'])} (the paper: 94 %), "
        f"ethnicity {percent(original['ethnicity'])}, age off by {original['age']:.1f} years (7.2)."
    ]
    for name, values in found.items():
        last = max(values)
        at = values[last]
        if name == BLUR:
            lines.append(
                f"{name} of {last:g} per pixel, the same for all faces: gender {percent(at['gender'])}, ethnicity "
                f"{percent(at['ethnicity'])}, age off by {at['age']:.1f} years. What an encoder hides beyond that is "
                "not lack of sharpness."
            )
            continue
        silent = sum(gap == 0 for gap in at["ΔDemP age"].values())
        lines.append(
            f"{name} at {last:g} per pixel: gender {percent(at['gender'])} by a fresh attacker "
            f"({percent(at['training adversary'])} by the training adversary, the paper's measure; it prints "
            f"62 %), ethnicity {percent(at['ethnicity'])} (above 74 %), age off by {at['age']:.1f} years (8.7), "
            f"ΔDemP of ethnicity {max(at['ΔDemP ethnicity'].values()):.3f} (0.03) and of age "
            f"{max(at['ΔDemP age'].values()):.3f} (0.015), with ΔDemP(y) = 0 for {silent} of the ages that are ever "
            "predicted (17)."
        )
    lines.append(_asked(original, found, len(bench.test)))
    if not bench.weights:
        lines.append(
            "The paper's ethnicity network is a VGG16 trained on ImageNet. No weights were given "
            f"(set {WEIGHTS} to a file of them), so a small network with the same head is trained from scratch: the "
            "baseline is lower."
        )
    if profile == "quick":
        here, there = SIZES["quick"], SIZES["paper"]
        lines.append(
            f"`quick` differs from the paper: faces of {here.side} x {here.side} instead of {there.side} x "
            f"{there.side}, an autoencoder of {here.width} channels instead of {there.width}, {here.steps} steps of "
            f"{here.batch} faces with {here.adversary_steps} adversary steps each instead of {there.steps:,} of "
            f"{there.batch} with {there.adversary_steps}, rates {here.rate:g} and {here.adversary_rate:g} instead of "
            f"{there.rate:g} and {there.adversary_rate:g}, and fresh networks from {len(bench.some)} faces. This "
            f"small autoencoder cannot reach the paper's smaller distortions: {min(here.budgets):g} is the smallest."
        )
    return lines


def _asked(original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]], faces: int) -> str:
    """Which points lower gender by at least 15 points and ethnicity by at most 15."""
    met = []
    for name, values in found.items():
        for budget, value in values.items():
            gender, ethnicity = (100 * (original[kind] - value[kind]) for kind in ("gender", "ethnicity"))
            if name != BLUR and gender >= 15 and ethnicity <= 15 and value["distortion"] <= 0.01 and value["met"]:
                met.append(f"{name} at {budget:g} (gender -{gender:.1f}, ethnicity -{ethnicity:.1f})")
    return (
        "Gender at least 15 points below its baseline, ethnicity within 15 points of its own, at no more than 0.01 per "
        f"pixel: {'; '.join(met) or 'no point here'}. One standard error of such a difference, on {faces:,} test "
        f"faces, is at most {100 * np.sqrt(2 * 0.2 / faces):.1f} points. The attacker is the one of three (a network, "
        "trees, nearest neighbours) that did best on held-out training faces."
    )


def _table(original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> Table:
    rows: list[list[object]] = [["original", 0, "", percent(original["gender"]), "", percent(original["ethnicity"]),
                                 f"{original['age']:.2f}", max(original["ΔDemP ethnicity"].values()),
                                 max(original["ΔDemP age"].values()), ""]]  # fmt: skip
    for name, values in found.items():
        for budget, value in values.items():
            training = value.get("training adversary")
            rows.append([name, budget, f"{value['distortion']:.5f}", percent(value["gender"]),
                         "" if training is None else percent(training), percent(value["ethnicity"]),
                         f"{value['age']:.2f}", max(value["ΔDemP ethnicity"].values()),
                         max(value["ΔDemP age"].values()),
                         "" if value.get("met", True) else "bound not met on held-out faces"])  # fmt: skip
    return Table(
        "Trade-offs (Figs. fig:UTK_race, fig:UTK_age1, fig:UTK_age2)",
        ["mechanism", "distortion per pixel", "of test faces", "gender, fresh attacker",
         "gender, training adversary", "ethnicity", "age, mean error", "ΔDemP ethnicity", "ΔDemP age", ""],
        rows,
    )  # fmt: skip


def _parity_table(original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> Table:
    rows: list[list[object]] = []
    points = [("original", 0.0, original), *((n, b, v) for n, values in found.items() for b, v in values.items())]
    for name, budget, value in points:
        place = PRINTED_DISTORTIONS.index(budget) if budget in PRINTED_DISTORTIONS else None
        gaps = [value["ΔDemP ethnicity"].get(group, 0.0) for group in FOUR]
        printed = ["" if place is None else PRINTED_GAPS[group][place] for group in FOUR]
        rows.append([name, budget, *(f"{gap:.3f}" for gap in gaps), *printed])
    return Table("ΔDemP of each ethnicity (Table tab:my_label)",
                 ["mechanism", "distortion per pixel", *FOUR, *(f"{group}, printed" for group in FOUR)],
                 rows)  # fmt: skip


def _draw_faces(path: Path, bench: Bench, members: Sequence[FairEncoder]) -> None:
    from matplotlib.figure import Figure as Canvas

    chosen = bench.test.take(bench.typical())
    rows: list[tuple[str, Images]] = [("original", chosen.X)]
    for budget, trained in zip(bench.sizes.budgets, members, strict=True):
        rows.append((f"{budget:g}", release_image_batch(trained.veil_, chosen.X, chosen.S, 0)))
    canvas = Canvas(figsize=(13, 1.0 * len(rows)), layout="constrained")
    grid = canvas.subplots(len(rows), len(chosen), squeeze=False)
    for line, (label, images) in zip(grid, rows, strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(np.clip(image, 0, 255 if image.dtype == np.uint8 else 1))
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(label, fontsize=9)
    for axes, gender in zip(grid[0], chosen.S["gender"], strict=True):
        axes.set_title(gender, fontsize=8)
    canvas.savefig(path, dpi=75)


def _draw(path: Path, original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> None:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(12, 8), layout="constrained")
    (a, b), (c, d) = canvas.subplots(2, 2)
    for i, (name, values) in enumerate(found.items()):
        points = [original, *values.values()]
        gender = [100 * p["gender"] for p in points]
        style = {"color": f"C{i}", "marker": "o", "ms": 4, "label": name}
        a.plot(gender, [100 * p["ethnicity"] for p in points], **style)
        b.plot([max(p["ΔDemP ethnicity"].values()) for p in points], [100 * p["ethnicity"] for p in points], **style)
        c.plot(gender, [p["age"] for p in points], **style)
        d.plot([max(p["ΔDemP age"].values()) for p in points], [p["age"] for p in points], **style)
    ends = {"marker": "*", "ls": ":", "color": "grey", "label": "paper, both ends"}
    gender, ethnicity = ([100 * share for share in PRINTED[kind]] for kind in ("gender", "ethnicity"))
    a.plot(gender, ethnicity, **ends)
    b.plot(PRINTED["ΔDemP ethnicity"], ethnicity, **ends)
    c.plot(gender, PRINTED["age"], **ends)
    d.plot(PRINTED["ΔDemP age"], PRINTED["age"], **ends)
    a.set(xlabel="gender, fresh attacker (%)", ylabel="ethnicity (%)")
    b.set(xlabel="ΔDemP of ethnicity", ylabel="ethnicity (%)")
    c.set(xlabel="gender, fresh attacker (%)", ylabel="mean error of age (years)")
    d.set(xlabel="ΔDemP of age", ylabel="mean error of age (years)")
    for axes in (a, b, c, d):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    canvas.savefig(path, dpi=100)


def _draw_ages(path: Path, original: dict[str, Any], found: dict[str, dict[float, dict[str, Any]]]) -> None:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(12, 4.4), layout="constrained")
    left, right = canvas.subplots(1, 2)
    values = found["NAED"]
    for i, (label, point) in enumerate([("original", original), *((f"dist {b:g}", v) for b, v in values.items())]):
        left.plot(_ERRORS, point["errors"], color=f"C{i}", label=label)
        by_age = {int(y): gap for y, gap in point["ΔDemP age"].items()}
        right.plot(range(AGES[0], AGES[1] + 1), [by_age.get(y, 0.0) for y in range(AGES[0], AGES[1] + 1)],
                   color=f"C{i}", lw=1, label=label)  # fmt: skip
    left.set(xlabel="years", ylabel="share of faces", title="Age predicted within this many years, NAED")
    right.set(xlabel="age", ylabel="ΔDemP(age)", title="Demographic parity over ages, NAED")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    canvas.savefig(path, dpi=100)
