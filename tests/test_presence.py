"""Presence and absence: matching against brute force, known shares, controls that must fail, coverage of intervals."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fairveil as fv
from fairveil import AuditResult, InputError
from fairveil._utils.atomic import sha256_of
from fairveil.auditing.facts import Facts, Matches, default_facts
from fairveil.auditing.inputs import make_target, read_release, read_targets
from fairveil.auditing.presence import (
    is_notable,
    known_people,
    paired_difference,
    presence_rows,
    presence_sentence,
)
from fairveil.auditing.protocol import Terms, split_rows
from fairveil.workflows.release.driver import release_file
from fairveil.workflows.release.job import Options
from fairveil.workflows.release.known import find_known
from fairveil.workflows.release.presence import PresenceCount
from releases import fitted, table, write

FACTS = ["town", "job", "age"]


def crowd(rows: int, seed: int, towns: int = 400) -> tuple[pd.DataFrame, np.ndarray, np.random.Generator]:
    """People with facts that do not depend on their sex, many of them unique."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "town": generator.integers(0, towns, rows).astype(str), "job": generator.choice(list("abcdefgh"), rows),
        "age": generator.integers(0, 10, rows),
    })  # fmt: skip
    return frame, generator.choice(["f", "m"], rows, p=[0.4, 0.6]), generator


def measured(original, released, s, facts=FACTS, seed=0, **terms) -> pd.DataFrame:
    """The table of presence and absence alone, without the other stages of an audit."""
    target = make_target("s", read_targets(s, "s")["s"])
    strata = target.values if target.classes is not None else None
    parts = split_rows(None, strata, len(original), 10**6, seed)
    people = known_people(facts, read_release(released, "released"), read_release(original, "original"), ["s"])
    return pd.DataFrame(presence_rows(target, people, parts, Terms(seed=seed, **terms)))


def with_a_group_moved(frame: pd.DataFrame, moved: np.ndarray) -> pd.DataFrame:
    """The moved people get a town that nobody lives in: no row matches their facts, unless somebody else's does."""
    return frame.assign(town=np.where(moved, "nowhere", frame["town"]))


def of(frame: pd.DataFrame, group: str | None) -> pd.Series:
    return frame[frame["group"].isna() if group is None else frame["group"] == group].iloc[0]


def test_matches_are_those_of_brute_force():
    generator = np.random.default_rng(0)
    kinds = {"text": list("abc"), "flag": [True, False, None], "few": [0.5, 1.5, np.nan]}

    def table(rows):
        drawn = {name: pd.Series([values[i] for i in generator.integers(0, 3, rows)]) for name, values in kinds.items()}
        return pa.Table.from_pandas(pd.DataFrame(drawn | {"many": generator.normal(size=rows)}))

    original, released = table(200), table(150)
    facts = Facts.of(["text", "flag", "few", "many"], original, released)
    matches = Matches(facts, facts.codes(original))
    for start in (0, 100):  # counted in batches
        matches.add(released.slice(start, 100))
    edges = np.quantile(original["many"].to_numpy(), np.linspace(0, 1, 11)[1:-1])

    def plain(t):
        frame = t.to_pandas().assign(many=np.digitize(t["many"].to_numpy(), edges))
        return frame.astype(object).where(frame.notna(), "missing").to_numpy()

    same = plain(original)[:, None, :] == plain(released)[None, :, :]
    np.testing.assert_array_equal(matches.exact, same.all(axis=2).sum(axis=1))
    np.testing.assert_array_equal(matches.near, (same.sum(axis=2) == 3).sum(axis=1))
    for column in range(4):
        others = np.delete(same, column, axis=2).all(axis=2).sum(axis=1)
        np.testing.assert_array_equal(matches.without[:, column], others)
    assert matches.exact.max() > 1


def test_values_that_the_original_lacks_match_nobody():
    original, released = pa.table({"a": ["x", "y"], "n": [1, 2]}), pa.table({"a": ["z", "x"], "n": [1, 3]})
    facts = Facts.of(["a", "n"], original, released)
    matches = Matches(facts, facts.codes(original))
    matches.add(released)
    assert matches.exact.tolist() == [0, 0]
    assert matches.near.tolist() == [2, 0]  # (z, 1) and (x, 3) differ in one column from (x, 1)


def test_absence_that_proves_a_group_is_found_with_its_share():
    frame, s, generator = crowd(6000, 0)
    moved = (s == "f") & (generator.random(len(s)) < 0.5)
    found = measured(frame, with_a_group_moved(frame, moved), s)
    counts = with_a_group_moved(frame, moved).value_counts()
    absent = np.array([counts.get(key, 0) == 0 for key in frame.itertuples(index=False, name=None)])
    truth = absent[s == "f"].mean()  # about 0.5 * (1 - the chance that somebody shares all facts)
    women, men = of(found, "f"), of(found, "m")
    assert 0.3 < truth < 0.5
    assert women["newly_certain_low"] <= truth <= women["newly_certain_high"]
    assert women["certain_facts"] == 0.0
    assert (women["rule"], women["precision"]) == ("no match", 1.0)
    assert women["precision_low"] > 0.98
    assert women["claims_right_low"] > 0.98
    assert women["rule_share"] == pytest.approx(truth, abs=0.04)
    assert men["newly_certain_high"] < 0.01
    everyone = of(found, None)
    assert everyone["newly_certain"] == pytest.approx(0.4 * truth, abs=0.02)
    assert everyone["accuracy_gain_low"] > 0.05
    assert is_notable(found)
    assert "'no match' is right in 100.0 %" in presence_sentence(found)


def dependent(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.random.Generator]:
    """People whose facts tell their sex to some extent, a part of them almost surely."""
    frame, s, generator = crowd(rows, seed, towns=60)
    role = np.where(generator.random(rows) < 0.4, np.where(s == "f", "wife", "husband"), "other")
    return frame.assign(job=np.where(generator.random(rows) < 0.02, "other", role)), s, generator


@pytest.mark.parametrize("seed", range(3))
def test_an_unchanged_release_adds_nothing_to_the_facts(seed):
    frame, s, _ = dependent(4000, seed)
    found = measured(frame, frame, s, seed=seed)
    assert of(found, None)["certain_facts"] > 0.3
    assert found["newly_certain"].eq(0.0).all()
    assert not is_notable(found)


@pytest.mark.parametrize("seed", range(3))
def test_a_release_of_other_people_adds_nothing_to_the_facts(seed):
    frame, s, _ = dependent(4000, seed)
    found = measured(frame, dependent(4000, seed + 100)[0], s, seed=seed)
    assert of(found, None)["certain_facts"] > 0.3
    assert (found["newly_certain"].abs() < 0.01).all()
    assert (found["newly_certain_low"] <= 0.0).all()
    assert (found["newly_certain_high"] >= 0.0).all()
    assert not is_notable(found)


def test_more_than_two_groups_and_numbers_in_quarters():
    frame, _, generator = crowd(6000, 1)
    s = generator.choice(["a", "b", "c"], len(frame))
    found = measured(frame, with_a_group_moved(frame, s == "b"), s)
    assert of(found, "b")["newly_certain_low"] > 0.5
    assert (of(found, "a")["newly_certain_high"], of(found, "c")["newly_certain_high"]) < (0.02, 0.02)
    wage = generator.normal(size=len(frame))
    found = measured(frame, with_a_group_moved(frame, wage > np.quantile(wage, 0.75)), wage)
    assert of(found, "highest quarter")["newly_certain_low"] > 0.5
    assert len(found) == 5


def test_counts_are_of_the_whole_release_where_rows_are_a_sample():
    frame, s, _ = crowd(3000, 2)
    released = with_a_group_moved(frame, s == "f")
    sample = np.arange(0, 3000, 2)
    tables = [read_release(part, "") for part in (released.iloc[sample], frame.iloc[sample])]
    whole = pa.Table.from_pandas(released, preserve_index=False)
    people = known_people(FACTS, *tables, ["s"], [whole.slice(0, 1000), whole.slice(1000)])
    facts = Facts.of(FACTS, tables[1].arrow, tables[0].arrow)
    matches = Matches(facts, facts.codes(tables[1].arrow))
    matches.add(whole)
    np.testing.assert_array_equal(people.matches, matches.exact)
    assert (people.matches[s[sample] == "m"] > 0).all()


def test_paired_intervals_cover_the_true_difference():
    generator = np.random.default_rng(0)
    for n, gain, loss in ((300, 0.01, 0.01), (300, 0.3, 0.0), (1000, 0.0, 0.003), (150, 0.3, 0.3), (2000, 0.9, 0.05)):
        hits = 0
        for _ in range(300):
            kind = generator.choice(3, n, p=[gain, loss, 1 - gain - loss])
            found = paired_difference(kind == 0, kind == 1)
            hits += found.low <= gain - loss <= found.high
        assert hits >= 282, (n, gain, loss)


def test_the_whole_measure_covers_the_share_of_a_file():
    """Files in which absence proves a group; benchmarks/audit.py presence does the same 300 times."""
    hits = 0
    for run in range(40):
        frame, s, generator = crowd(600, run, towns=100)
        released = with_a_group_moved(frame, (s == "f") & (generator.random(len(s)) < 0.6))
        there = set(released.itertuples(index=False, name=None))
        absent = np.array([key not in there for key in frame.itertuples(index=False, name=None)])
        women = of(measured(frame, released, s, seed=run), "f")
        hits += women["newly_certain_low"] <= absent[s == "f"].mean() <= women["newly_certain_high"]
    assert hits >= 38


def test_default_facts_identify_people_and_skip_identifiers_and_repetitions():
    frame, _, generator = crowd(3000, 3)
    frame = frame.assign(
        name=[f"p{i}" for i in range(3000)], job_code=frame["job"].map(ord), flag=generator.random(3000) < 0.5,
        constant="x", height=generator.normal(size=3000),
    ).drop(columns="town")  # fmt: skip
    chosen = default_facts(pa.Table.from_pandas(frame), list(frame.columns))
    assert set(chosen) in ({"job", "age", "flag"}, {"job_code", "age", "flag"})
    only = frame[["flag", "height"]]
    assert default_facts(pa.Table.from_pandas(only), list(only.columns)) == ["flag", "height"]
    assert default_facts(pa.Table.from_pandas(frame[["name"]]), ["name"]) == []


@pytest.fixture(scope="module")
def result():
    frame, s, _ = crowd(2500, 4)
    frame = frame.assign(height=np.where(s == "m", 3.0, 0.0) + np.random.default_rng(0).normal(size=len(s)).round(2))
    released = with_a_group_moved(frame, s == "f")
    return fv.audit(released, pd.Series(s, name="sex"), original=frame, quasi_identifiers=FACTS, verbose=False)


def test_an_audit_reports_presence_and_absence(result, tmp_path):
    assert result.presence["facts"].eq("town, job, age").all()
    assert "by matching rows" in result.verdict()
    result.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "<h2>Presence and absence</h2>" in page
    assert "no match" in page
    again = AuditResult.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert again.verdict() == result.verdict()


@pytest.mark.parametrize(
    ("column", "value"),
    [("newly_certain_low", "high"), ("newly_certain", None), ("precision", 7.0), ("group", 3), ("facts", ["x"]),
     ("rule", {"a": 1}), ("certain", True), ("certain_facts", 1e308)],
)  # fmt: skip
def test_a_forged_table_is_refused(result, column, value):
    values = json.loads(result.to_json())
    table = values["presence"]
    table["rows"][0][table["columns"].index(column)] = value
    with pytest.raises(InputError, match="not an audit"):
        AuditResult.from_dict(values)
    values["presence"] = {"columns": ["group"], "rows": [["x"]]}
    with pytest.raises(InputError, match="not an audit"):
        AuditResult.from_dict(values)


@pytest.mark.parametrize(
    ("facts", "said"),
    [(["sex"], "is sensitive"), (["shoe"], "not in both"), (["job", "job"], "twice"), ([], "no column"),
     ("job", "list of column names")],
)  # fmt: skip
def test_unusable_facts_are_refused(facts, said):
    frame, s, _ = crowd(300, 5)
    with pytest.raises(InputError, match=said):
        fv.audit(frame, pd.Series(s, name="sex"), original=frame, quasi_identifiers=facts, verbose=False)
    if facts == ["sex"]:
        with pytest.raises(InputError, match="original"):
            fv.audit(frame, pd.Series(s, name="sex"), quasi_identifiers=["job"], verbose=False)


def test_a_card_and_an_audit_of_files_report_presence(tmp_path):
    frame = table(1200)
    path = write(tmp_path, frame)
    fitted(path, tmp_path / "sex.veil")
    released = tmp_path / "censored.csv"
    options = Options(seed=0, unverified=True, show_progress=False, known=("role", "town"))
    card = release_file(path, tmp_path / "sex.veil", released, options)
    assert "their role, town, becomes more than 90 % certain" in card["release"]["presence"]
    assert "What presence and absence tell" in (tmp_path / "censored.csv.card.md").read_text()
    wrong = Options(seed=0, known=("shoe", "sex"), again=True, show_progress=False)
    with pytest.raises(InputError, match="'shoe' is not among the released columns"):
        release_file(path, tmp_path / "sex.veil", tmp_path / "other.csv", wrong)
    before, after = pd.read_csv(path), pd.read_csv(released)
    order = find_known(sha256_of(released), released, path, tmp_path / "sex.veil", same_order=False).order
    found = known_people(["role", "town"], read_release(after, ""), read_release(before.iloc[order], ""), ["sex"])
    keys = after[["role", "town"]].fillna("").agg("/".join, axis=1).value_counts()
    mine = before.iloc[order][["role", "town"]].fillna("").agg("/".join, axis=1)
    np.testing.assert_array_equal(found.matches, [keys.get(key, 0) for key in mine])


def test_a_card_counts_the_rows_that_are_written(tmp_path):
    """The count while writing, against the finished file."""
    frame = table(1500)
    path = write(tmp_path, frame, "people.parquet")
    fitted(write(tmp_path, frame), tmp_path / "sex.veil")
    counted = []

    class Watched(PresenceCount):
        def told(self):
            counted.append((self._people, self.matches))
            return super().told()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairveil.workflows.release.tables.PresenceCount", Watched)
        options = Options(seed=0, unverified=True, show_progress=False)
        release_file(path, tmp_path / "sex.veil", tmp_path / "out.parquet", options)
    [(people, matches)] = counted
    again = Matches(matches.facts, matches.facts.codes(people))
    again.add(pa.Table.from_pandas(pd.read_parquet(tmp_path / "out.parquet")))
    np.testing.assert_array_equal(matches.exact, again.exact)
    assert matches.exact.sum() > 0
