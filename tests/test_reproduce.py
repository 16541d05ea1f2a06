"""The experiments of the paper in miniature, on made-up data: every page, table and figure comes about."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fairveil import InputError
from fairveil.datasets import ImageSplit, Split
from fairveil.paper import NAMES, adult, genki, har, utkface
from fairveil.paper.fresh import Fresh, Sample, _tenth, embedded_information, strongest
from fairveil.paper.games import measured
from fairveil.paper.reproduce import EXPERIMENTS, reproduce
from fairveil.paper.results import Store
from fairveil.paper.vgg import convolutions, vgg_features

TINY = Fresh((8,), epochs=1)


def faces(rows, side, channels, seed):
    generator = np.random.default_rng(seed)
    shape = (rows, side, side) if channels == 1 else (rows, side, side, 3)
    x = generator.random(shape).astype(np.float32)
    return x if channels == 1 else (255 * x).astype(np.uint8)


def fake_genki():
    def part(rows, seed):
        numbers = np.arange(rows)
        gender = pd.DataFrame({"gender": np.array(genki.GENDERS)[numbers % 2]})
        expression = pd.Series(np.array(genki.EXPRESSIONS)[numbers // 2 % 2])
        return ImageSplit(faces(rows, 16, 1, seed), gender, {"expression": expression})

    return part(120, 0), part(60, 1)


def fake_har():
    def part(rows, seed):
        x = pd.DataFrame(np.random.default_rng(seed).random((rows, 40)).astype(np.float32))
        x.columns = [str(name) for name in x.columns]
        x.attrs["original"] = False
        activity = pd.Series(np.array(["SIT", "WALK"])[np.arange(rows) % 2])
        return Split(x, pd.DataFrame({"subject": np.arange(rows) % 30 + 1}), {"activity": activity})

    return part(300, 0), part(300, 1)


def fake_utkface(side):
    def part(rows, seed):
        numbers = np.arange(rows)
        gender = pd.DataFrame({"gender": np.array(utkface.GENDERS)[numbers % 2]})
        targets = {"ethnicity": pd.Series(np.array(utkface.FOUR)[numbers // 2 % 4]),
                   "age": pd.Series(10 + numbers * 7 % 50)}  # fmt: skip
        return ImageSplit(faces(rows, side, 3, seed), gender, targets)

    return part(120, 0), part(80, 1)


def fake_adult(case):
    def part(rows, seed):
        generator = np.random.default_rng(seed)
        x = pd.DataFrame({"job": generator.choice(["a", "b", "c"], rows), "hours": generator.integers(20, 60, rows)})
        s = {"sex": generator.choice(["Female", "Male"], rows)}
        if case == "II":
            s["relationship"] = generator.choice(["Husband", "Own"], rows)
        return Split(x, pd.DataFrame(s), {"salary": pd.Series(generator.integers(0, 2, rows))})

    return part(600, 0), part(300, 1)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(genki, "load_genki", fake_genki)
    monkeypatch.setattr(har, "load_har", fake_har)
    monkeypatch.setattr(utkface, "load_utkface", fake_utkface)
    monkeypatch.setattr(adult, "load_adult", fake_adult)
    for module, changes in (
        (genki, {"budgets": (1.0, 3.0), "steps": 2, "our_steps": 2, "epochs": 1, "draws": 2, "lessons": 2}),
        (har, {"budgets": (2.0, 8.0), "our_budgets": (2.0, 8.0), "steps": 2, "epochs": 1, "draws": 1,
               "lessons": 2}),
        (utkface, {"budgets": (0.003, 0.01), "steps": 2, "lessons": 2, "width": (4, 4, 4, 4), "noise": 4, "side": 16,
                   "epochs": 1, "age": replace(TINY, filters=(4,)), "batch": 16}),
        (adult, {"nats": (1.0,), "budgets": (1.0,), "steps": 2, "our_steps": 2, "lessons": 3}),
    ):  # fmt: skip
        monkeypatch.setattr(module, "SIZES", {**module.SIZES, "quick": replace(module.SIZES["quick"], **changes)})


@pytest.mark.parametrize(
    ("name", "figures", "words"),
    [
        ("adult-1", ["adult-1.png"], ["fig:UCI-CaseI", "training adversary", "ours, (X, S)"]),
        ("adult-eo", ["adult-eo.png"], ["fig:UCI-CaseI-EO", "0.0261"]),
        ("adult-2", ["adult-2.png"], ["fig:UCI-CaseII-Censoring", "pair, fresh attacker", "ours, X"]),
        ("genki", ["genki.png", "genki-faces.png"], ["5792.62", "tb:errorTCNNE", "Laplace", "FNND, ours"]),
        ("har", ["har.png"], ["fig:har:pca:top32", "recomputed", "Gaussian noise"]),
        (
            "utkface",
            ["utkface.png", "utkface-ages.png", "utkface-faces-paper.png", "utkface-faces-ours.png"],
            ["tab:my_label", "VGG16", "0.082", "NAED that sees S, ours", "Blur"],
        ),
    ],
)
def test_a_page_with_its_figures_and_tables(small, tmp_path, name, figures, words):
    told = []
    [path] = reproduce(name, tmp_path, tell=told.append, progress=False)
    text = path.read_text(encoding="utf-8")
    assert f"fairveil reproduce {name} --profile quick" in text
    for word in (*words, "torch", "Settings"):
        assert word in text
    for figure in figures:
        assert (tmp_path / figure).stat().st_size > 5_000
        assert figure in text
    assert not list(tmp_path.glob(".*checkpoint"))
    # A second run computes nothing and writes the same.
    before, first = len(told), text
    reproduce(name, tmp_path, tell=told.append, progress=False)
    assert len(told) == before + 2
    assert path.read_text(encoding="utf-8") == first


def test_every_experiment_has_a_page():
    assert tuple(EXPERIMENTS) == NAMES


def test_unknown_names_and_profiles(tmp_path):
    with pytest.raises(InputError, match="no experiment 'mnist'"):
        reproduce("mnist", tmp_path)
    with pytest.raises(InputError, match="'quick' or 'paper'"):
        reproduce("genki", tmp_path, "fast")


def test_all_leaves_out_what_has_no_data(monkeypatch, tmp_path):
    from fairveil import DataNotFound
    from fairveil.paper import reproduce as module

    def absent(*_, **__):
        raise DataNotFound("HAR was not found. Get it from UCI.")

    only = {"har": replace(EXPERIMENTS["har"], run=absent)}
    monkeypatch.setattr(module, "EXPERIMENTS", only)
    [index] = reproduce("all", tmp_path, tell=lambda text: None)
    assert "Get it from UCI" in index.read_text()
    with pytest.raises(DataNotFound):
        reproduce("har", tmp_path, tell=lambda text: None)


def test_a_store_computes_once_and_forgets_other_settings(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": np.float64(1.5)}

    path = tmp_path / "x.json"
    assert Store(path, {"steps": 1}).get("one", compute) == {"a": 1.5}
    assert Store(path, {"steps": 1}).get("one", compute) == {"a": 1.5}
    assert len(calls) == 1
    Store(path, {"steps": 2}).get("one", compute)
    assert len(calls) == 2
    path.write_text(path.read_text()[:20])  # a file that is no longer whole
    Store(path, {"steps": 2}).get("one", compute)
    assert len(calls) == 3
    assert json.loads(path.read_text())["values"]["one"]["value"] == {"a": 1.5}


def test_neighbours_are_not_judged_by_other_draws_of_the_same_rows():
    generator = np.random.default_rng(0)
    x, s = generator.normal(size=(200, 4)).astype(np.float32), generator.integers(0, 2, 200).astype(float)
    draws = np.concatenate([x + 0.01 * generator.normal(size=x.shape).astype(np.float32) for _ in range(3)])
    held, kept = _tenth(Sample(draws, np.tile(s, 3), draws=3), seed=0)
    assert len(held) == 60
    assert set(held % 200).isdisjoint(kept % 200)
    assert sorted([*held, *kept]) == list(range(600))


def test_fresh_models_find_what_is_there_and_nothing_else():
    generator = np.random.default_rng(0)
    half, rows = 2000, 4000
    s = generator.integers(0, 2, rows)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    shown = x + 2.0 * s[:, None] * np.eye(6, dtype=np.float32)[0]
    networks = (Fresh((16,), epochs=8),)
    parts = [[Sample(rows[part], s[part].astype(float)) for part in (slice(half), slice(half, None))]
             for rows in (shown, x)]  # fmt: skip
    # A mean shift of two deviations: 84.1 % are right at best, and S is told 0.34 nats.
    for (train, test), low, high in zip(parts, (0.81, 0.46), (0.87, 0.54), strict=True):
        assert low < strongest(train, test, networks, classes=2)["best"] < high
    told, nothing = (embedded_information(train, test, classes=2, embedding=Fresh((16, 4), epochs=8))
                     for train, test in parts)  # fmt: skip
    assert 0.2 < told < 0.36  # an embedding of a few thousand rows tells a part of it
    assert nothing < 0.05


def test_vgg_takes_local_weights(tmp_path):
    model = convolutions()
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in model) == 13
    torch.save({f"features.{name}": value for name, value in model.state_dict().items()}, tmp_path / "vgg.pth")
    assert vgg_features(faces(3, 64, 3, 0), tmp_path / "vgg.pth").shape == (3, 2048)
    (tmp_path / "bad.pth").write_bytes(b"nothing")
    with pytest.raises(InputError, match="no weights of VGG16"):
        vgg_features(faces(3, 64, 3, 0), tmp_path / "bad.pth")


def test_what_is_interrupted_while_measuring_is_not_trained_again(tmp_path):
    trained, keys = [], {1.0: "a", 2.0: "b"}

    def train(checkpoint):
        trained.append(checkpoint.exists())
        checkpoint.write_text("a finished game")
        return ["first", "second"]

    def measure(member):
        if member == "second" and len(trained) == 1:
            raise KeyboardInterrupt
        return member

    with pytest.raises(KeyboardInterrupt):
        measured(Store(tmp_path / "x.json", {}), "game", keys, train, measure)
    found, _ = measured(Store(tmp_path / "x.json", {}), "game", keys, train, measure)
    assert trained == [False, True]
    assert found == {1.0: "first", 2.0: "second"}
    assert not list(tmp_path.glob(".*checkpoint"))


def test_trees_find_what_networks_and_neighbours_do_not():
    """S in the last digits: attackers of one family are not enough."""
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 4000)
    x = generator.normal(size=(4000, 5)).round(2)
    x[:, 0] = np.where(s == 1, x[:, 0] // 1, x[:, 0] // 1 + 0.001)
    parts = [Sample(x[half].astype(np.float32), s[half].astype(float)) for half in (slice(3000), slice(3000, None))]
    found = strongest(*parts, (Fresh((16,), epochs=5),), classes=2)
    assert found["trees"] > 0.9 > max(found["neighbours"], found["network 1"], found["linear"])
    assert found["best"] == found["trees"]
