"""Publications by matching: blocks and levels against counts, exact solvers and simulation; budgets; attackers."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.optimize import linprog
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

import fairveil as fv
from fairveil import BudgetNotMet, InputError, Schema, exchange
from fairveil._utils.randomness import KeyedStream
from fairveil.data.frames import read_table
from fairveil.data.table_codec import Codec
from fairveil.matching import publication
from fairveil.matching.blocks import (
    block_count,
    cheapest,
    form_blocks,
    group_shares,
    shuffle_within,
    spread_of,
    variation_bound,
)
from fairveil.matching.levels import find_levels
from fairveil.matching.points import rank_points
from fairveil.matching.publication import People, publish
from fairveil.objectives.distortion import make_distortion
from fairveil.objectives.released import ReleasedBatch
from helpers import rank_cost


def stream(number=0):
    return KeyedStream(b"test", number.to_bytes(4, "big"))


def table_of(rows, seed, share=0.4):
    """`code` determines `group`; `role` and `status` belong together and tell S; `size` is a number that tells it."""
    generator = np.random.default_rng(seed)
    s = (generator.random(rows) < share).astype(int)
    role = np.where(generator.random(rows) < 0.85, np.where(s == 1, "wife", "husband"), "single")
    code = generator.choice(list("abcdef"), rows)
    return pd.DataFrame({
        "role": role,
        "status": np.where(role == "single", "alone", np.where(generator.random(rows) < 0.9, "married", "alone")),
        "code": code,
        "group": np.isin(code, ["a", "b"]).astype(int),
        "town": generator.choice(["x", "y", "z"], rows),
        "size": np.round(generator.normal(170 - 10 * s, 7, rows), 1),
    }), s  # fmt: skip


def published(frame, s, seed=0, certified=0.05, budget=None, schema=None):
    people = People(np.asarray(s), np.zeros(len(s), dtype=np.int64), ["m", "f"])
    schema = schema or Schema.infer(frame)
    return publish(
        read_table(frame).arrow, schema, people, certified=certified, budget=budget, source=stream(seed)
    ), schema


@pytest.mark.parametrize(("sizes", "certified"), [((300, 600), 0.01), ((400, 600), 0.01), ((300, 705), 0.05)])
def test_groups_have_the_same_share_of_every_block(sizes, certified):
    sizes = np.array(sizes)
    count = block_count(sizes, ["a", "b"], certified)
    groups = np.repeat([0, 1], sizes)
    points = np.random.default_rng(0).normal(size=(len(groups), 2)).astype(np.float32)
    blocks = form_blocks(points, groups, count, stream())
    table = np.zeros((count, 2), dtype=int)
    np.add.at(table, (blocks, groups), 1)
    assert (np.ptp(table, axis=0) <= 1).all()
    bound = variation_bound(group_shares(blocks, groups, count, 2), np.ones(count, dtype=bool), 0, 1)
    assert bound == pytest.approx(0.5 * np.abs(table[:, 0] / sizes[0] - table[:, 1] / sizes[1]).sum())
    assert bound <= certified
    assert len(groups) / count <= 10


def test_uneven_groups_need_larger_blocks_and_tiny_ones_are_refused():
    assert block_count(np.array([400, 600]), ["a", "b"], None) == 400
    assert block_count(np.array([400, 600]), ["a", "b"], 0.01) == 200
    with pytest.raises(InputError, match="'a' has too few rows"):
        block_count(np.array([2, 1000]), ["a", "b"], 0.05)
    assert block_count(np.array([2, 300, 700]), ["a", "b", "c"], None) == 300


def test_blocks_consist_of_similar_rows():
    points = np.random.default_rng(1).normal(size=(600, 2)).astype(np.float32)
    groups = np.arange(600) % 3
    near = spread_of(points, form_blocks(points, groups, 200, stream()), 200).sum()
    far = spread_of(points, np.random.default_rng(2).permutation(600) % 200, 200).sum()
    assert near < 0.2 * far


def test_permutations_within_blocks_are_uniform():
    blocks = np.array([0, 1, 0, 1, 1])
    met = np.zeros((5, 5))
    for i in range(900):
        chosen = shuffle_within(blocks, stream(i))
        assert sorted(chosen) == list(range(5))
        assert (blocks[chosen] == blocks).all()
        met[np.arange(5), chosen] += 1
    wanted = (blocks[:, None] == blocks[None, :]) / np.where(blocks == 0, 2, 3)[:, None]
    assert np.abs(met / 900 - wanted).max() < 5 * np.sqrt(0.25 / 900)


def test_the_cost_of_a_block_is_the_mean_over_all_its_permutations():
    points = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)
    blocks = np.array([0, 0, 0, 1, 1, 1, 1])
    every = np.square(points[:, None] - points[None]).sum(axis=2)
    wanted = [every[:3, :3].sum() / 3, every[3:, 3:].sum() / 4]
    assert spread_of(points, blocks, 2) == pytest.approx(wanted, rel=1e-4)


def test_the_cheapest_blocks_solve_the_linear_program():
    costs = np.random.default_rng(4).exponential(size=60)
    for most in (1.0, 10.0, 30.0):
        moves = cheapest(costs, most)
        # min sum(1 - p) subject to costs . p <= most, 0 <= p <= 1; whole blocks lose less than one of it
        best = linprog(-np.ones(60), A_ub=costs[None, :], b_ub=[most], bounds=(0, 1))
        assert costs[moves].sum() <= most
        assert -best.fun - 1.0 < moves.sum() <= -best.fun + 1e-9


def test_distances_of_points_are_the_distortion():
    frame, _ = table_of(300, 5)
    schema = Schema.infer(frame)
    codec = Codec(schema, "most_frequent")
    rows = codec.encode_rows(read_table(frame).arrow)
    points, kept = rank_points(schema.layout, rows.x)
    assert kept.shape[1] == 0
    other = np.random.default_rng(0).permutation(300)
    released = rows.x[other]
    wanted = make_distortion("auto", schema.layout, "sampled").realised(ReleasedBatch(released, released), rows.x)
    found = np.square(points - points[other]).sum(axis=1)
    assert found == pytest.approx(wanted.sum(dim=1).numpy(), abs=0.02)


def test_levels_keep_what_belongs_together():
    frame, s = table_of(2000, 6)
    found, schema = published(frame, s)
    assert [(rule.by, rule.column) for rule in schema.dependencies] == [("code", "group")]
    levels = {name: i for i, level in enumerate(found.levels) for name in level}
    assert levels["code"] == levels["group"]
    assert levels["role"] == levels["status"]
    assert len(found.levels) == 4
    independent = {name: np.random.default_rng(i).integers(0, 9, 200) for i, name in enumerate(frame)}
    assert len(find_levels(schema, independent)) == 5


def test_a_level_never_holds_nearly_all_columns():
    z = np.random.default_rng(7).integers(0, 5, 500)
    frame = pd.DataFrame({name: [f"{name}{v}" if i % 20 else "odd" for i, v in enumerate(z)] for name in "abcdef"})
    schema = Schema(Schema.infer(frame).columns)
    assert max(map(len, find_levels(schema, dict.fromkeys(frame, z)))) <= 3


def test_marginals_stay_dependencies_hold_and_records_do_not():
    frame, s = table_of(3000, 8)
    found, _ = published(frame, s)
    out = found.rows.to_pandas()
    for name in ("role", "status", "code", "group", "town"):
        pd.testing.assert_series_equal(out[name].value_counts(), frame[name].value_counts(), check_dtype=False)
    assert max(drift.total_variation for drift in found.drift) == 0.0
    assert (out["group"] == out["code"].isin(["a", "b"]).astype(int)).all()
    assert out.groupby("role")["status"].unique()["single"].tolist() == ["alone"]
    # Most released records are those of nobody, although this table has few possible records.
    records = set(map(tuple, frame.astype(str).to_numpy()))
    assert np.mean([tuple(row) in records for row in out.astype(str).to_numpy()]) < 0.4
    assert np.mean((out["size"] == frame["size"]) & (out["code"] == frame["code"])) < 0.1
    assert found.moved == 1.0


def test_every_row_of_a_block_has_the_same_distribution():
    """The certificate by simulation: how often each value of two levels goes to each group, far below the bound."""
    frame, s = table_of(60, 9, share=0.5)
    frame["row"] = np.arange(60) % 12
    met = [np.zeros((3, 3)), np.zeros((3, 3))]
    schema = Schema.infer(frame.astype({"row": str}), fewest=1)
    places = ({"husband": 0, "wife": 1, "single": 2}, {"x": 0, "y": 1, "z": 2})
    worst = 0.0
    for seed in range(150):
        found, _ = published(frame.astype({"row": str}), s, seed, certified=0.2, schema=schema)
        worst = max(worst, *found.bounds.values())
        out = found.rows.to_pandas()
        for group in (0, 1):
            np.add.at(met[group], (out["role"].map(places[0])[s == group], out["town"].map(places[1])[s == group]), 1)
    shares = [table / table.sum() for table in met]
    raw = pd.crosstab([frame["role"], frame["town"]], s, normalize="columns").diff(axis=1)[1].abs().sum() / 2
    assert raw > 0.7
    assert worst <= 0.2
    assert np.abs(shares[0] - shares[1]).sum() / 2 < worst + 0.05


def test_a_fresh_attacker_fails_and_a_task_is_kept():
    frame, s = table_of(3000, 10)
    y = ((frame["code"].isin(["a", "b", "c"])) ^ (np.random.default_rng(0).random(3000) < 0.1)).astype(str)
    out, certificate = exchange(frame, sensitive_features=s, purpose="publication", random_state=0, verbose=False)
    assert certificate.kind == "construction"
    assert certificate.bound <= 0.05
    found = {name: (auc_of(x, s), auc_of(x, y == "True")) for name, x in (("raw", frame), ("out", out))}
    assert found["raw"][0] > 0.9
    assert found["out"][0] < 0.55
    assert found["out"][1] > 0.75


def auc_of(x, y):
    """Of a forest on one-hot columns, learned from the first rows and tested on the others."""
    features, half = pd.get_dummies(x).to_numpy(dtype=float), len(x) // 2
    model = RandomForestClassifier(60, min_samples_leaf=10, random_state=0).fit(features[:half], y[:half])
    return roc_auc_score(y[half:], model.predict_proba(features[half:])[:, 1])


def linked(frame, released, s):
    """AUC on S from the role in the row found by an exact identifier, which each person has alone."""
    told = dict(zip(released["name"], released["role"] == "wife", strict=True))
    guess = frame["name"].map(told).fillna(0.5).to_numpy(dtype=float)
    wife, husband = guess[s == 1], guess[s == 0]
    return float((wife[:, None] > husband[None]).mean() + 0.5 * (wife[:, None] == husband[None]).mean())


def test_who_recognises_a_person_finds_the_true_record_in_a_representation_and_not_in_a_publication():
    frame, s = table_of(1200, 11)
    schema = Schema.infer(frame)
    frame["name"] = np.arange(1200.0)
    whole, _ = exchange(frame, sensitive_features=s, certified=0.0, random_state=0, verbose=False)
    assert linked(frame, frame, s) > 0.9  # control: the original
    assert linked(frame, whole, s) > 0.9  # the set of records is unchanged
    frame["name"] = [f"n{i:04d}" for i in range(1200)]
    name = fv.Column("name", "categorical", categories=tuple(frame["name"]))
    found, _ = published(frame, s, schema=Schema((*schema.columns, name), schema.dependencies))
    assert abs(linked(frame, found.rows.to_pandas(), s) - 0.5) < 0.06


@pytest.mark.parametrize("budget", [0.4, 0.8])
def test_a_budget_holds_exactly_on_the_released_values(budget):
    frame, s = table_of(2500, 12)
    found, schema = published(frame, s, certified=None, budget=budget)
    out = found.rows.to_pandas()
    changed = sum((frame[n] != out[n]).mean() for n in ("role", "status", "code", "group", "town"))
    moved = rank_cost(schema["size"], frame["size"], out["size"]).mean()
    assert found.total == pytest.approx(changed + moved, abs=2e-3)
    assert 0.9 * budget < found.total <= budget
    stay = 1.0 - found.moved
    [bound] = found.bounds.values()
    assert stay - 0.01 < bound < stay + 0.35  # blocks of 1 or 2 rows of the larger group, and the rows that stay


def test_smaller_budgets_certify_less_and_impossible_ones_are_refused():
    frame, s = table_of(1500, 13)
    bounds = [max(published(frame, s, certified=None, budget=b)[0].bounds.values()) for b in (0.2, 0.6, 5.0)]
    assert bounds[0] > bounds[1] > bounds[2]
    with pytest.raises(BudgetNotMet, match="Raise the budget or the certified value"):
        published(frame, s, certified=0.05, budget=0.3)
    with pytest.raises(BudgetNotMet, match="already cost"):
        published(frame, s, certified=None, budget=0.0)


def test_chunks_have_the_shares_of_the_table(monkeypatch):
    frame, s = table_of(2400, 14)
    monkeypatch.setattr(publication, "_CHUNK", 500)
    found, _ = published(frame, s)
    assert max(found.bounds.values()) <= 0.05
    out = found.rows.to_pandas()
    pd.testing.assert_series_equal(out["role"].value_counts(), frame["role"].value_counts())
    assert np.mean(out["size"].to_numpy() - frame["size"].to_numpy()) == pytest.approx(0, abs=0.2)


def test_kept_columns_stay_and_draw_similar_rows():
    frame, s = table_of(2000, 15)
    schema = Schema.infer(frame, keep=["town"])
    out, certificate = exchange(
        frame, sensitive_features=s, purpose="publication", schema=schema, random_state=3, verbose=False
    )
    again, _ = exchange(
        frame, sensitive_features=s, purpose="publication", schema=schema, random_state=3, verbose=False
    )
    pd.testing.assert_frame_equal(out, again)
    pd.testing.assert_series_equal(out["town"], frame["town"])
    assert certificate.bound <= 0.05


def test_within_parts_targets_and_missing_values():
    frame, s = table_of(600, 16)
    frame.loc[::7, "size"] = np.nan
    frame.loc[::9, "town"] = None
    part = np.arange(600) % 2
    y = pd.Series(np.where(frame["code"] == "a", "yes", "no")).where(np.arange(600) % 5 > 0)
    out, certificate = exchange(
        frame, sensitive_features=s, purpose="publication", within=part, targets={"y": y}, random_state=1, verbose=False
    )
    assert certificate.notion == "equalized_odds"
    for name in ("size", "town"):
        assert out[name].isna().sum() == frame[name].isna().sum()
    for value in (0, 1):
        pd.testing.assert_series_equal(
            out["role"][part == value].value_counts(), frame["role"][part == value].value_counts()
        )
    assert isinstance(
        exchange(pa.table(frame[["role", "code"]]), sensitive_features=s, purpose="publication", verbose=False)[0],
        pa.Table,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"purpose": "print"}, "purpose"),
        ({"purpose": "publication", "certified": None}, "upper bound"),
        ({"purpose": "representation", "schema": "given"}, "publication"),
        ({"purpose": "publication", "schema": "exact"}, "without bins"),
        ({"purpose": "publication", "schema": "nothing"}, "nothing to exchange"),
    ],
)
def test_bad_arguments(arguments, message):
    frame, s = table_of(100, 17)
    schema = Schema.infer(frame)
    schemas = {"given": schema, "exact": schema.without_bins(), "nothing": Schema.infer(frame, keep=list(frame))}
    if "schema" in arguments:
        arguments = {**arguments, "schema": schemas[arguments["schema"]]}
    with pytest.raises(InputError, match=message):
        exchange(frame, sensitive_features=s, verbose=False, **arguments)


def test_images_cannot_be_published():
    with pytest.raises(InputError, match="images have none"):
        exchange(np.zeros((20, 4, 4, 3), np.uint8), sensitive_features=np.arange(20) % 2, purpose="publication")
