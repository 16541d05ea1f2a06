"""Results show themselves: in notebooks, as plots, on pages, and in MLflow."""

import html
import json
import re
import sys
import types

import numpy as np
import pandas as pd
import pytest

import fairveil as fv
from fairveil import InputError, workflows
from fairveil._utils.progress import Job, Status, progress, told_to, whole_job
from fairveil.auditing import probe
from fairveil.auditing.columns import MISSING, OTHERS, compare_columns
from fairveil.data.frames import read_table
from fairveil.report.svg import Mark, bars, scatter
from fairveil.workflows.points import recommend, unmet_reason
from fairveil.workflows.release.card import Card
from helpers import people

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def audited():
    frame, s, y = people(1500)
    frame = frame.rename(columns={"town": HOSTILE})
    released = frame.assign(role="other", height=frame["height"].round(-1))
    return fv.audit(released, s["sex"], {"hired": y}, original=frame, verbose=False)


def test_an_audit_shows_itself(audited, tmp_path):
    shown = audited._repr_html_()
    assert "is visible" in audited.headline()
    assert html.escape(audited.headline()) in shown
    audited.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert HOSTILE not in page
    assert "What happened to the columns" in page
    assert page.count('class="chart"') == 4
    assert "@media print" in page
    again = fv.AuditResult.from_json(audited.to_json())
    pd.testing.assert_frame_equal(again.columns, audited.columns)
    pd.testing.assert_frame_equal(again.marginals, audited.marginals, check_dtype=False)
    assert again.headline() == audited.headline()


def test_plots_are_axes(audited):
    (leak,) = audited.plot()
    assert len(leak.get_yticks()) == len(audited.attacks)
    columns = audited.plot("columns")
    assert [axes.get_title() for axes in columns] == list(audited.marginals["column"].drop_duplicates())
    with pytest.raises(InputError, match="'leakage' or 'columns'"):
        audited.plot("nothing")


def test_columns_are_compared_exactly():
    """Against shares and total variation computed by hand."""
    n = 1000
    before = pd.DataFrame({"same": ["a", "b"] * 500, "moved": ["a"] * 600 + ["b"] * 400, "number": np.arange(n) % 60.0,
                           "rare": ["common"] * 991 + [f"person {i}" for i in range(9)],
                           "gone": [None] * 100 + ["x"] * 900})  # fmt: skip
    after = before.assign(moved=["a"] * 300 + ["b"] * 700, gone=["x"] * 1000)
    columns, marginals = compare_columns(read_table(before), read_table(after))
    found = columns.set_index("column")
    assert found.loc["same", ["changed", "drift"]].tolist() == [0.0, 0.0]
    assert found.loc["moved", "changed"] == pytest.approx(0.3)
    assert found.loc["moved", "drift"] == pytest.approx(0.3)
    assert found.loc["gone", "drift"] == pytest.approx(0.1)
    assert found.loc["number", ["changed", "drift"]].tolist() == [0.0, 0.0]
    for name, rows in marginals.groupby("column"):
        assert rows["before"].sum() == pytest.approx(1.0), name
        assert rows["after"].sum() == pytest.approx(1.0), name
    listed = set(marginals.loc[marginals["column"] == "rare", "value"])
    assert listed == {"common", OTHERS}  # no value of fewer than ten rows
    assert MISSING not in set(marginals["value"])


def test_dates_are_ranges_of_dates():
    days = pd.DataFrame({"day": pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(600), "D")})
    _, marginals = compare_columns(read_table(days), read_table(days))
    assert all(re.fullmatch(r"(below|from) \d{4}-\d\d-\d\d.*", value) for value in marginals["value"])


def test_charts_escape_names_and_stay_within_their_axes():
    marks = [Mark(0.1, 0.64, HOSTILE, 0, y_ends=(0.63, 0.65)), Mark(2.0, 0.7, "b", 1)]
    chart = scatter(marks, title=HOSTILE, x_label=HOSTILE, y_label="y", y_guess=0.5, percent=True)
    assert HOSTILE not in chart
    assert "style=" not in chart  # a strict policy forbids it
    for height in re.findall(r'cy="([\d.]+)"', chart):
        assert 14 <= float(height) <= 272
    ticks = [float(text) for text in re.findall(r">(-?[\d.]+) %<", chart)]
    assert min(ticks) <= 50 <= max(ticks)  # guessing is on the axis: small differences look small
    assert HOSTILE not in bars([(HOSTILE, 0.2, 0.3)], title="t")


def test_a_schema_a_certificate_and_a_card_show_themselves(made):
    schema = workflows.inspect_file(workflows.open_table(made / "people.csv"), ("sex",)).schema()
    assert "height" in schema._repr_html_()
    s = np.repeat(["f", "m"], 500)
    certificate = fv.certify(np.tile(np.arange(2), 500), s, alphabet=2, trained_on=())
    assert "Certified at confidence" in certificate._repr_html_()
    card = Card({"release": {"file": HOSTILE, "rows": 9, "sha256": "0"}, "veil": {"hides": ["sex"], "budget": 1.0},
                 "distortion": {"total": None}, "audit": None, "certificate": None, "limits": ["None."]})  # fmt: skip
    assert HOSTILE not in card._repr_html_()
    assert json.loads(json.dumps(card))["veil"]["hides"] == ["sex"]


def test_time_left_is_for_the_whole_job(monkeypatch):
    """Two seconds per step: the stages to come are added, whether known or taken to last as long as this one."""
    now = [0.0]
    monkeypatch.setattr("fairveil._utils.progress.time.monotonic", lambda: now[0])
    told: list[Status] = []
    with told_to(told.append), whole_job({"Training": None, "Scoring": 30.0}) as job:
        with progress(10, "Pretraining") as report:
            now[0] += 2.0
            report(1)
        assert told[-1].left == pytest.approx(18 + 20 + 30)
        job.expect("Scoring", 50.0)
        with progress(5, "Training") as report:
            now[0] += 2.0
            report(1)
            assert told[-1].left == pytest.approx(8 + 50)
        with progress(5, "Scoring", unit="models") as report:
            now[0] += 10.0
            report(5, "done")
    assert told[-1].left == 0.0
    assert told[-1].note == "done"
    assert Job({}).after(3.0) == 0.0


def at(budget, auc, high, met=True):
    return {"budget": budget, "met": met, "S AUC": auc, "S AUC low": auc - 0.02, "S AUC high": high}


@pytest.mark.parametrize(
    ("points", "budget", "hidden"),
    [
        ([at(0.0, 0.95, 0.96), at(1.0, 0.54, 0.56), at(2.0, 0.50, 0.52)], 1.0, True),
        ([at(1.0, 0.54, 0.62), at(2.0, 0.50, 0.52)], 2.0, True),  # too uncertain at 1
        ([at(0.5, 0.51, 0.52, met=False), at(2.0, 0.53, 0.55)], 2.0, True),
        ([at(1.0, 0.70, 0.72), at(2.0, 0.65, 0.67)], 2.0, False),
        ([at(1.0, 0.50, 0.52, met=False)], None, False),
        ([at(0.0, 0.50, 0.52)], None, False),  # the original data is no release
    ],
)
def test_the_recommendation_follows_its_rule(points, budget, hidden):
    found = recommend(points)
    assert (found.budget, found.hidden) == (budget, hidden)
    assert found.reason


@pytest.mark.parametrize(
    ("mean", "upper", "lost", "told"),
    [(0.4, 0.6, 0.0, "More rows"), (0.7, 0.9, 0.0, "More steps"), (0.7, 0.9, 0.6, "before anything is hidden")],
)
def test_an_unmet_budget_has_a_reason(mean, upper, lost, told):
    assert told in unmet_reason(fv.Achieved(mean, upper, 0.5, 100, 0.95, lost=lost))


def test_a_small_table_is_not_judged_by_trees_alone():
    """A linear truth in 400 rows: logistic regression is close to the optimum, 200 trees are not."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4400, 8))
    truth = x @ np.arange(1, 9) / 4 + generator.logistic(size=4400) > 0
    frame = pd.DataFrame(x, columns=list("abcdefgh"))
    trees, best = (
        probe(frame[:400], truth[:400], frame[400:], truth[400:], linear=linear).accuracy.value
        for linear in (False, True)
    )
    assert best > trees + 0.03
    steps = (np.floor(2 * x[:, 0]) + np.floor(2 * x[:, 1])) % 2 > 0  # no linear model can tell this
    assert probe(frame[:4000], steps[:4000], frame[4000:], steps[4000:], linear=True).accuracy.value > 0.8


def test_results_are_logged_to_mlflow(audited, place, monkeypatch):
    logged = {"metrics": {}, "params": {}, "files": []}
    fake = types.ModuleType("mlflow")
    fake.log_metrics = logged["metrics"].update
    fake.log_params = logged["params"].update
    fake.log_artifact = lambda path: logged["files"].append(path.rsplit("/", 1)[1])
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    workflows.log_to_mlflow(encoder=fv.load(place / "sex.veil"), audit=audited)
    assert logged["params"]["hides"] == "sex"
    assert 0.5 <= logged["metrics"]["sex_auc"] <= 1
    assert logged["files"] == ["audit.html", "audit.json", "encoder.veil"]
    with pytest.raises(InputError, match="There is no card"):
        workflows.log_to_mlflow(release=place / "absent.csv")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match="MLflow is not installed"):
        workflows.log_to_mlflow(audit=audited)


def test_what_a_column_tells_is_an_auc(tmp_path):
    """Where one group is large, accuracy says nothing: a column that tells S well must not look harmless."""
    generator = np.random.default_rng(0)
    n = 20_000
    rare = generator.random(n) < 0.05
    frame = pd.DataFrame({"s": np.where(rare, "rare", "usual"), "noise": generator.choice(list("abc"), n),
                          "telling": np.where(rare | (generator.random(n) < 0.1), "yes", "no")})  # fmt: skip
    frame.to_csv(tmp_path / "table.csv", index=False)
    found = {
        f.column.name: f.tells
        for f in workflows.inspect_file(workflows.open_table(tmp_path / "table.csv"), ["s"]).found
    }
    assert found["telling"] == pytest.approx(0.95, abs=0.02)  # 1 - 0.1 / 2
    assert found["noise"] == pytest.approx(0.5, abs=0.06)
