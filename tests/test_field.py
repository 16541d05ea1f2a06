"""The comparison over tables: methods do what they claim, judges have controls, results are kept."""

import json

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fairveil as fv
from fairveil.theory.adversary import total_variation
from field import data, store, summary, synthetic
from field.coding import Vectors
from field.judges import attack, drift, learn_task, parity_gap
from field.methods import METHODS, fare, reweighing
from field.methods.fair_pca import FairPCA
from field.methods.gradient_projection import GradientProjection, _projected
from field.methods.leace import Leace
from field.methods.randomised_repair import barycentre
from field.page import write_page
from field.protocol import Fitted, Method, Output, Rows, vectors
from field.run import apply, measure, run


def correlated(n=3000, seed=0):
    """Five columns of which all show s linearly, one of them also by its spread."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, n)
    x = generator.normal(size=(n, 5)) @ generator.normal(size=(5, 5)) + np.outer(s, [1.0, -0.5, 0.3, 0.8, 0.1])
    x[:, 4] *= 1.0 + 2.0 * s
    return x, s


def auc_of(model, x, s):
    half = len(x) // 2
    chances = model.fit(x[:half], s[:half]).predict_proba(x[half:])[:, 1]
    return roc_auc_score(s[half:], chances)


def test_leace_leaves_nothing_linear_and_only_that():
    x, s = correlated()
    one_hot = np.eye(2)[s]
    erased = Leace(x, one_hot)(x)
    assert np.abs((erased - erased.mean(axis=0)).T @ (one_hot - one_hot.mean(axis=0)) / len(x)).max() < 1e-10
    assert auc_of(LogisticRegression(), x, s) > 0.75
    assert abs(auc_of(LogisticRegression(), erased, s) - 0.5) < 0.05
    assert auc_of(LGBMClassifier(n_estimators=50, n_jobs=0, verbose=-1), erased, s) > 0.75  # trees still find it
    # The change is of rank one: two groups differ in one direction.
    assert np.linalg.matrix_rank(erased - x, tol=1e-8) == 1


def test_releases_of_vectors_do_not_tell_s_by_rounding_errors():
    """An eraser fills the slot of an unused category with errors of the size of 1e-17 that are linear in the row."""
    x, s = correlated()
    erased = np.column_stack([Leace(x, np.eye(2)[s])(x), 1e-17 * x[:, 0]])
    released = vectors(erased).table
    assert abs(auc_of(LogisticRegression(), Vectors(released)(released), s) - 0.5) < 0.05
    raw = pd.DataFrame(erased)
    assert auc_of(LogisticRegression(), Vectors(raw)(raw), s) > 0.6  # models scale columns


def test_leace_is_that_of_its_authors():
    eraser = pytest.importorskip("concept_erasure").LeaceEraser
    torch = pytest.importorskip("torch")
    x, s = correlated()
    theirs = eraser.fit(torch.from_numpy(x), torch.from_numpy(s.astype(float))[:, None], shrinkage=False)
    theirs = theirs(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(Leace(x, s[:, None].astype(float))(x), theirs, atol=1e-6)


def test_fair_pca_equalises_the_means_and_is_pca_otherwise():
    x, s = correlated()
    made = FairPCA(x, np.eye(2)[s], 3)(x)
    np.testing.assert_allclose(made[s == 0].mean(axis=0), made[s == 1].mean(axis=0), atol=1e-8)
    even = np.concatenate([x, x])
    groups = np.eye(2)[np.repeat([0, 1], len(x))]  # the groups are copies: nothing needs to be removed
    plain = np.linalg.svd(even - even.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(
        np.abs(FairPCA(even, groups, 2)(even)), np.abs(plain[0][:, :2] * plain[1][:2]), atol=1e-6
    )


def test_gradient_projection_ends_on_the_surface():
    import torch

    torch.manual_seed(0)
    linear, x = torch.nn.Linear(4, 1), torch.randn(50, 4)
    assert linear(_projected(linear, x)).abs().max() < 1e-5
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 1200)
    turn = generator.uniform(0, 2 * np.pi, 1200)
    rings = np.stack([np.cos(turn), np.sin(turn)], axis=1) * (1 + s)[:, None] + generator.normal(0, 0.2, (1200, 2))
    assert abs(auc_of(LogisticRegression(), rings, s) - 0.5) < 0.07  # nothing for a linear eraser to erase
    erased = GradientProjection(rings, s == 1, 4, seed=0)(rings, 4)
    assert auc_of(LGBMClassifier(n_estimators=50, n_jobs=0, verbose=-1), rings, s) > 0.95
    assert auc_of(LGBMClassifier(n_estimators=50, n_jobs=0, verbose=-1), erased, s) < 0.85


def test_the_barycentre_is_the_same_for_groups_of_equal_size():
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(0, 1, (200, 1)), generator.normal(3, 2, (200, 1))])
    second = np.repeat([False, True], 200)
    moved = barycentre(x, second, generator)
    np.testing.assert_allclose(np.sort(moved[second, 0]), np.sort(moved[~second, 0]))
    # On a line the barycentre averages quantiles.
    np.testing.assert_allclose(np.sort(moved[second, 0]), (np.sort(x[:200, 0]) + np.sort(x[200:, 0])) / 2)


def test_a_small_group_is_spread_over_the_barycentre():
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.normal(0, 1, (600, 1)), generator.normal(3, 1, (200, 1))])
    second = np.arange(800) >= 600
    moved = barycentre(x, second, generator)
    assert abs(moved[second].mean() - 0.75) < 0.2
    assert abs(moved[second].mean() - moved[~second].mean()) < 0.15


def test_reweighing_makes_group_and_label_independent():
    generator = np.random.default_rng(0)
    group = generator.choice(["a", "b", "c"], 1000)
    y = (generator.random(1000) < np.where(group == "a", 0.2, 0.6)).astype(int)
    weight = reweighing.row_weights(group, y)
    joint = pd.crosstab(group, y, weight, aggfunc="sum", normalize=True).to_numpy()
    np.testing.assert_allclose(joint, np.outer(joint.sum(axis=1), joint.sum(axis=0)), atol=1e-12)
    assert weight.sum() == pytest.approx(1000)


def merit_and_proxy(n=4000, seed=0):
    """The task depends on both columns; the first is independent of s, the second shows it."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, n)
    x = np.stack([generator.normal(size=n), generator.normal(size=n) + 1.5 * s], axis=1)
    y = (generator.random(n) < expit(2.0 * x[:, 0] + 2.0 * (x[:, 1] - 0.75))).astype(int)
    return x, y, s


def test_fair_trees_avoid_splits_that_show_the_group():
    x, y, s = merit_and_proxy()
    free, fair = (fare.FairTree(x, y, s, gamma, 8, 50) for gamma in (0.0, 0.9))
    assert {split.column for split in free.splits.values()} == {0, 1}
    assert {split.column for split in fair.splits.values()} == {0}
    assert len(free.code) <= 8
    assert np.bincount(free(x)).min() >= 50


def test_fare_certifies_no_less_than_is_there():
    """Of twenty fits, the certified value is below the total variation of 200,000 fresh rows in at most two."""
    fresh, _, group = merit_and_proxy(200_000, seed=99)
    broken = 0
    for seed in range(20):
        x, y, s = merit_and_proxy(900, seed)
        tree = fare.FairTree(x[:600], y[:600], s[:600], 0.3, 6, 30)
        bound = fv.certify(tree(x[600:]), s[600:], alphabet=len(tree.code), trained_on=range(600), rows=range(600, 900))
        joint = pd.crosstab(group, tree(fresh), normalize=True).to_numpy()
        broken += total_variation(joint) > bound.bound
    assert broken <= 2


def test_the_optimum_of_the_shifted_table_is_reached_by_thresholds():
    frame, optimum = synthetic.shifted(0)
    logit = 1.2 * frame["a"] + 1.2 * frame["u"]
    second = frame["group"] == "b"
    assert ((logit > 0) == frame["y"]).mean() == pytest.approx(synthetic.best_accuracy(1.0), abs=0.008)
    even = np.where(second, logit > 0.72, logit > -0.72)  # each group's own median
    assert (even == frame["y"]).mean() == pytest.approx(synthetic.best_accuracy(0.0), abs=0.008)
    assert 0 < optimum["ΔDemP <= 0.02"] < optimum["ΔDemP <= 0.05"] < 1


def test_the_merit_table_hides_nothing_in_its_merits():
    frame, _ = synthetic.merit(0)
    s = (frame["group"] == "b").to_numpy().astype(int)
    assert abs(auc_of(LogisticRegression(), frame[["u0", "u1"]].to_numpy(), s) - 0.5) < 0.02
    assert auc_of(LGBMClassifier(n_estimators=50, n_jobs=0, verbose=-1), frame[["v0", "v1"]].to_numpy(), s) > 0.8


def test_attackers_find_what_is_there_and_nothing_else():
    generator = np.random.default_rng(0)
    s = generator.choice(["a", "b", "c"], 1500)
    shown = pd.DataFrame({"x": np.where(s == "a", 1.0, 0.0) + generator.normal(0, 0.3, 1500),
                          "t": np.where(generator.random(1500) < 0.9, s, "a")})  # fmt: skip
    hidden = shown.sample(frac=1.0, random_state=1).reset_index(drop=True)
    for table, low, high in ((shown, 0.9, 1.0), (hidden, 0.4, 0.6)):
        judged = {"test": (table[800:], s[800:])}
        assert low <= attack(table[:800], s[:800], judged, seed=0, tries=9)["test"] <= high


def test_task_models_of_three_families():
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"x": generator.normal(size=1200)})
    y = (table["x"] > 0).to_numpy().astype(int)
    made, chosen = learn_task({"fit": table[:800], "new": table[800:1000], "test": table[1000:]}, y[:800], 0)
    assert set(made) == {"LightGBM", "linear", "network"}
    assert (made[chosen]["test"] == y[1000:]).mean() > 0.97


def test_gaps_leave_out_small_groups():
    S = pd.DataFrame({"a": ["x"] * 100 + ["y"] * 100 + ["z"] * 3, "b": ["u"] * 203})
    guess = np.array([1] * 60 + [0] * 40 + [1] * 20 + [0] * 80 + [1] * 3)
    assert parity_gap(guess, S) == pytest.approx(0.4)


def test_drift_is_the_largest_total_variation():
    before = pd.DataFrame({"t": ["a", "b"] * 50, "n": np.arange(100.0)})
    assert drift(before, before.iloc[::-1]) == 0.0
    assert drift(before, before.assign(t="a")) == pytest.approx(0.5)
    assert drift(before, before.rename(columns={"t": "z"})) is None


@pytest.fixture
def staff(tmp_path):
    """A CSV file and its description: any table can be added by a file."""
    generator = np.random.default_rng(0)
    n = 900
    sex, skill = generator.choice(["f", "m"], n), generator.normal(size=n).round(2)
    frame = pd.DataFrame({"sex": sex, "skill": skill, "job": np.where(generator.random(n) < 0.8, sex, "m"),
                          "town": generator.choice(["a", "b"], n),
                          "hired": np.where(generator.random(n) < expit(2 * skill), "yes", "no")})  # fmt: skip
    frame.to_csv(tmp_path / "staff.csv", index=False)
    told = tmp_path / "staff.yaml"
    told.write_text(f"file: {tmp_path / 'staff.csv'}\nsensitive: [sex]\ntarget: {{hired: hired == yes}}\n"
                    "unnamed: {town: town == a}\nnumbers: [skill]\n")  # fmt: skip
    return told


def test_a_table_is_a_yaml_file(staff):
    table = data.load(str(staff), seed=0)
    assert list(table.parts["fit"].X) == ["skill", "job", "town"]
    assert sum(map(len, table.parts.values())) == 900
    assert len(table.parts["test"]) == 300
    assert data.load(str(staff), seed=0, rows=300).groups == 2
    staff.write_text(staff.read_text().replace("sensitive: [sex]", "sensitive: [gender]"))
    with pytest.raises(fv.InputError, match="no columns gender"):
        data.load(str(staff))
    staff.write_text("file: x.csv\n")
    with pytest.raises(fv.InputError, match="lacks sensitive, target"):
        data.load(str(staff))


def test_the_ten_tables_are_described():
    assert len(data.names()) == 10
    for name in data.names():
        assert data.description(name)["about"]


def test_methods_do_not_get_labels_nor_s_unless_they_see_it(staff):
    table, seen = data.load(str(staff)), []

    def look(rows: Rows) -> Output:
        seen.append((rows.y is None, rows.S is None))
        return Output(rows.X)

    apply(Fitted("", look), table, sees=False)
    apply(Fitted("", look), table, sees=True)
    assert seen == [(True, True)] * 3 + [(True, False)] * 3
    with pytest.raises(ValueError, match="1 of"):
        apply(Fitted("", lambda rows: Output(rows.X[:1])), table, sees=False)


def result_of(staff, method, tmp_path, **settings):
    path = tmp_path / "one.json"
    given = {"rows": None, "tries": 2, "limit": 60, "battery": False, **settings}
    base = {"table": "staff", "method": method, "seed": 0, "settings": given, "points": [], "failure": None,
            "commit": "", "versions": {}, "done": False}  # fmt: skip
    measure(str(staff), base, path)
    return store.read(path)


def test_failures_are_results(staff, tmp_path, monkeypatch):
    def broken(train, seed):
        yield Fitted("first", lambda rows: Output(predicted=np.zeros(len(rows), dtype=int)))
        raise RuntimeError("no convergence")

    monkeypatch.setitem(METHODS, "broken", Method("broken", broken, ""))
    monkeypatch.setitem(METHODS, "absent", Method("absent", broken, "", needs=("no_such_package",)))
    found = result_of(staff, "broken", tmp_path)
    assert found["done"]
    assert found["failure"] == "RuntimeError: no convergence"
    assert found["points"][0]["predictor"]["ΔDemP"] == 0.0
    assert "not installed: no_such_package" in result_of(staff, "absent", tmp_path)["failure"]
    assert METHODS["LFR"].problem(3) in ("for two groups only, not 3", "not installed: aif360 (extra `field`)")


def test_runs_are_limited_in_time_and_resumed(staff, tmp_path, monkeypatch):
    settings = {"rows": None, "tries": 500, "limit": 1, "battery": False}
    found = run(str(staff), "original", 0, tmp_path, settings)
    assert found["failure"] == "time limit of 1 s"
    assert found["commit"]
    assert "torch" in found["versions"]
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: pytest.fail("it was run again"))
    assert run(str(staff), "original", 0, tmp_path, settings) == found


def test_the_page_comes_from_stored_results(staff, tmp_path, monkeypatch):
    found = [result_of(staff, name, tmp_path) for name in ("original", "LEACE", "reweighing")]
    for result in found:
        assert result["failure"] is None
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    assert store.collect(found, tmp_path / "all.json") == 3
    write_page(tmp_path / "all.json", tmp_path)
    page = (tmp_path / "field.md").read_text()
    assert "| LEACE |" in page
    assert "3 runs of a method" in page
    assert (tmp_path / "field" / "staff.png").stat().st_size > 5000
    assert json.loads((tmp_path / "all.json").read_text())[0]["table"] == "staff"


def made_up(method, seed, values):
    """A stored result of a predictor: (accuracy, gap) on new rows and on test rows for each value."""
    points = [{"setting": str(i), "certified": None, "seconds": 1.0, "MB": 1.0,
               "predictor": {"choose accuracy": a, "choose ΔDemP": g, "accuracy": b, "ΔDemP": h}}
              for i, (a, g, b, h) in enumerate(values)]  # fmt: skip
    return {"table": "t", "seed": seed, "method": method, "majority": {"named": 0.5}, "points": points}


def original(seed):
    task = {"accuracy": 0.9, "ΔDemP": 0.2, "choose accuracy": 0.9, "choose ΔDemP": 0.2}
    point = {"setting": "", "certified": None, "seconds": 1.0, "MB": 1.0,
             "data": {"task": task, "attack": {"auc": 0.9, "choose auc": 0.9, "by": ""}, "unnamed": {},
                      "drift": 0.0}}  # fmt: skip
    return {"table": "t", "seed": seed, "method": "original", "majority": {"named": 0.5}, "points": [point]}


def test_values_are_chosen_on_new_rows_and_scored_on_test_rows():
    zhang = [(0.8, 0.05, 0.7, 0.03), (0.7, 0.01, 0.6, 0.03), (0.6, 0.0, 0.85, 0.0)]
    results = [original(0), original(1), *(made_up("Zhang", seed, zhang) for seed in (0, 1)),
               made_up("reweighing", 0, [(0.9, 0.0, 0.9, 0.0)]),
               made_up("reweighing", 1, [(0.9, 0.3, 0.9, 0.0)])]  # fmt: skip
    rows = summary.entries(results)
    found = summary.kept(rows, "ΔDemP <= 0.02")
    assert found.loc["Zhang", "lift"] == pytest.approx((0.6 - 0.5) / (0.9 - 0.5))
    assert found.loc["Zhang", "measured"] == pytest.approx(0.03)
    assert "reweighing" not in found.index  # within the limit for one seed only
    assert summary.kept(rows, "ΔDemP <= 0.05").loc["Zhang", "lift"] == pytest.approx(0.5)
    places = summary.ranks(rows, "ΔDemP <= 0.02")["t"]
    assert places["Zhang"] == 0.0
    assert places["reweighing"] == 1.0


def test_intervals_over_seeds():
    assert np.isnan(summary.half_width(pd.Series([0.5])))
    assert summary.half_width(pd.Series([0.4, 0.5, 0.6])) == pytest.approx(4.303 * 0.1 / np.sqrt(3), rel=1e-3)
