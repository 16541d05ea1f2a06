"""Attackers that learn from rows the encoder was fitted on, and from new rows; which rows are which."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import fairveil as fv
from fairveil import InputError, audit
from fairveil.auditing.encoder_rows import FITTED, NEW, NOT_STATED, divide
from fairveil.auditing.inputs import make_target, read_targets
from fairveil.workflows import Options, Recipe, audit_file, fit_file, fit_frontier, open_source, release_file
from fairveil.workflows.release.known import find_known
from fairveil.workflows.release.ledger import Ledger
from helpers import QUICK, people
from releases import write


def overfitted(rows: int = 5000, fitted: int = 3000) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """A release that hides S in the rows the encoder was fitted on, and not in others; S; which rows are fitted."""
    generator = np.random.default_rng(0)
    s = pd.Series(generator.choice(["f", "m"], rows), name="sex")
    known = generator.permutation(rows) < fitted
    x = generator.normal(size=(rows, 3))
    x[:, 0] += np.where(known, 0.0, 1.5) * (s == "m")
    return pd.DataFrame(x.round(3), columns=list("abc")), s, known


@pytest.fixture(scope="module")
def found():
    released, s, known = overfitted()
    return audit(released, s, encoder_rows=pd.Series(known), verbose=False)


def test_attackers_learn_from_new_rows_and_fitted_ones_are_a_second_figure(found, tmp_path):
    [row] = found.leakage.to_dict("records")
    assert row["auc"] == pytest.approx(0.856, abs=0.03)  # Phi(1.5 / sqrt 2)
    # Nothing can be learned from fitted rows. Their attackers are tested on the same rows, which do leak, so a score in
    # a random direction is above or below 0.5.
    assert row["fitted_auc"] < row["auc"] - 0.15
    assert row["rows"] == 700
    assert found.settings["learned_from"] == NEW
    assert found.settings["new_rows"] == 2000
    assert found.settings["rows"] == {"train": 1000, "validation": 300, "test": 700}
    assert "learned from new rows" in found.verdict()
    assert "fitted on: AUC" in found.verdict()
    assert fv.AuditResult.from_json(found.to_json()).verdict() == found.verdict()
    found.to_html(tmp_path / "audit.html")
    assert "AUC from fitted rows" in (tmp_path / "audit.html").read_text()


def test_limits_also_hold_for_attackers_that_learn_from_fitted_rows(found):
    hidden = found.leakage.assign(auc=0.51, fitted_auc=0.7, fitted_found=True)
    assert len(replace(found, leakage=hidden).exceeded(auc=0.6)) == 1
    assert not replace(found, leakage=hidden.assign(fitted_found=False)).exceeded(auc=0.6)


def test_the_result_says_when_new_rows_are_too_few():
    released, s, known = overfitted(1500, 900)
    few = audit(released, s, encoder_rows=known, verbose=False)
    assert few.settings["learned_from"] == FITTED
    assert "only 600 new rows" in few.verdict()
    assert "fitted_auc" not in few.leakage
    assert "not stated" in replace(few, settings={**few.settings, "learned_from": NOT_STATED}).verdict()


def division(s, known, split=None, persons=None):
    return divide(known, split, [make_target("sex", read_targets(s, "sex")["sex"])], len(s), 10**6, 0, persons)


def test_rows_are_divided_by_what_is_known_of_the_encoder():
    _, s, known = overfitted()
    new = division(s, known)
    assert not known[new.parts.rows].any()
    assert known[np.concatenate([new.fitted.train, new.fitted.validation])].all()
    assert np.array_equal(new.fitted.test, new.parts.test)
    assert len(new.fitted.train) + len(new.fitted.validation) == 3000
    assert division(s, None).learned_from == NOT_STATED
    assert division(s, known | (np.arange(5000) < 4000)).learned_from == FITTED  # fewer than 1,000 new rows
    assert division(s, np.zeros(5000, dtype=bool)).learned_from == NEW
    split = np.where(known, "train", "test")
    assert division(s, known, split).learned_from == FITTED
    assert division(s, ~known, split).learned_from == NEW


def test_a_person_with_a_fitted_row_is_not_new():
    _, s, known = overfitted(2400, 100)
    persons = np.arange(2400) // 2
    new = division(s[persons * 2].reset_index(drop=True), known, persons=persons)
    touched = np.isin(persons, persons[known])
    assert new.new_rows == int((~touched).sum()) < int((~known).sum())
    assert not touched[new.parts.rows].any()


@pytest.mark.parametrize("wrong", [[1, 2, 3], np.ones(5000), np.ones(4999, dtype=bool), np.arange(5000),
                                   [True, None] * 2500])  # fmt: skip
def test_encoder_rows_must_be_one_boolean_per_row(wrong):
    released, s, _ = overfitted()
    with pytest.raises(InputError, match="encoder_rows must be a boolean"):
        audit(released, s, encoder_rows=wrong, verbose=False)


def encoder(**settings):
    return fv.FairEncoder(1e6, architecture="feedforward", sees_sensitive=True, training=QUICK, random_state=0,
                          verbose=False, **settings)  # fmt: skip


def test_the_encoder_never_sees_its_held_out_rows(small):
    """Shuffling S among the held-out rows does not change the encoder; shuffling it among fitted rows does."""
    x, s, _ = small
    s = s["sex"]
    first = encoder().fit(x, sensitive_features=s)
    fitted = first.fitted_rows_
    assert fitted.sum() == len(x) - int(0.1 * len(x))
    generator = np.random.default_rng(1)

    def weights(rows):
        other = s.copy()
        other[rows] = generator.permutation(other[rows])
        made = encoder().fit(x, sensitive_features=other)
        assert np.array_equal(made.fitted_rows_, fitted)
        return torch.cat([p.flatten() for p in made.veil_.encoder.parameters()])

    own = torch.cat([p.flatten() for p in first.veil_.encoder.parameters()])
    assert torch.equal(weights(~fitted), own)
    assert not torch.equal(weights(fitted), own)


def test_rows_without_weight_are_new(small):
    x, s, _ = small
    weight = np.r_[np.zeros(100), np.ones(len(x) - 100)]
    made = encoder().fit(x, sensitive_features=s["sex"], sample_weight=weight)
    assert not made.fitted_rows_[:100].any()
    assert made.fitted_rows_.sum() == 500 - 50


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A file of 4,000 people, a veil fitted to it by the file workflow, and a release."""
    folder = tmp_path_factory.mktemp("held")
    frame, s, y = people(4000)
    write(folder, frame.assign(sex=s["sex"], hired=y))
    recipe = Recipe(("sex",), architecture="feedforward", steps=5, seed=0, show_progress=False)
    fit_file(folder / "people.csv", folder / "sex.veil", 1e6, recipe)
    release_file(folder / "people.csv", folder / "sex.veil", folder / "out.csv", Options(show_progress=False))
    return folder


def test_an_audit_of_a_file_learns_from_the_rows_that_fit_held_out(place):
    result = audit_file(place / "out.csv", place / "people.csv", ["sex"], ["hired"], show_progress=False)
    assert result.settings["learned_from"] == NEW
    assert result.settings["new_rows"] == 1200
    assert result.settings["draws"] > 1
    assert "fitted_auc" in result.leakage


def known_fitted(place, release, original):
    release = place / release
    return find_known(open_source(release).digest(), release, place / original, place / "sex.veil",
                      same_order=False)  # fmt: skip


def test_the_ledger_knows_which_released_rows_were_fitted(place):
    known = known_fitted(place, "out.csv", "people.csv")
    rows = Ledger.of(place / "sex.veil").fitted.rows_of(known.entry)
    again = fv.FairEncoder(1e6, **Recipe(("sex",), architecture="feedforward", steps=5, show_progress=False).settings(
        fv.load(place / "sex.veil").schema_, 0, None, 0.3)).fit(pd.read_csv(place / "people.csv"))  # fmt: skip
    assert np.array_equal(rows, again.fitted_rows_)
    assert np.array_equal(known.fitted(), rows[known.order])


@pytest.mark.parametrize(("old", "expected"), [(0, "new"), (1500, "unknown")])
def test_a_release_of_another_file_is_of_new_rows_unless_it_shares_rows(place, old, expected):
    frame = pd.read_csv(place / "people.csv")
    other, s, y = people(3000, seed=9)
    other = other.assign(sex=s["sex"], hired=y)
    made = pd.concat([frame.iloc[:old], other.iloc[old:]], ignore_index=True)
    write(place, made, f"other{old}.csv")
    release_file(
        place / f"other{old}.csv", place / "sex.veil", place / f"out{old}.csv", Options(again=True, show_progress=False)
    )
    found = known_fitted(place, f"out{old}.csv", f"other{old}.csv").fitted()
    assert (found is not None and not found.any()) if expected == "new" else found is None


def test_a_frontier_compares_models_that_learned_from_new_rows(place):
    recipe = Recipe(("sex",), architecture="feedforward", steps=5, seed=0, show_progress=False)
    points = fit_frontier(place / "people.csv", place / "veils", [1e6], recipe)
    assert list(points["learned from"]) == [NEW, NEW]
    assert points["S AUC from fitted rows"].notna().all()
    ledger = Ledger.of(place / "veils" / "sex-1e+06.veil")
    assert ledger.fitted.rows == 4000
