"""Rows of one person, linked by a column that is passed on, told S by disagreeing (AUC .936; the audit said .686).

Where only one group is changed, two rows of a person that were equal and are not any more prove the group.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil.auditing.protocol import split_rows
from fairveil.data.columns import Column
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import job as asking
from releases import fitted, proposed, table, write

QUIET = Options(show_progress=False, workers=1)


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """300 people with four equal rows each, in a random order, and a veil that passes their number on."""
    folder = tmp_path_factory.mktemp("visits")
    people = table(300)
    frame = pd.concat([people.assign(who=[f"p{i}" for i in range(300)])] * 4).sample(frac=1.0, random_state=0)
    path = write(folder, frame)
    schema = proposed(write(folder, table(1200), "nameless.csv"))
    fitted(
        path,
        folder / "sex.veil",
        fv.Schema((*schema.columns, Column("who", "categorical", "pass")), schema.dependencies),
    )
    return folder


def release(visits, tmp_path, **options):
    chosen = replace(QUIET, again=True, **options)
    card = release_file(visits / "people.csv", visits / "sex.veil", tmp_path / "out.csv", chosen)
    return pd.read_csv(tmp_path / "out.csv"), card


def disagreeing(out):
    return (out.fillna("-").groupby("who").nunique() > 1).any(axis=1).mean()


def test_rows_of_a_person_that_are_drawn_apart_disagree(visits, tmp_path):
    """The attack, without a defence; the curator is warned."""
    out, card = release(visits, tmp_path)
    assert disagreeing(out) > 0.5
    assert any("pass --person who" in text for text in card["release"]["warnings"])


@pytest.mark.parametrize("seed", [None, 3])
def test_equal_rows_of_a_person_are_drawn_alike_in_any_batch(visits, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)
    out, card = release(visits, tmp_path, person="who", seed=seed)
    assert disagreeing(out) == 0.0
    assert not any("--person" in text for text in card["release"]["warnings"])
    assert card["release"]["person"] == "who"
    # People who are alike are still drawn apart.
    assert out.drop(columns="who").drop_duplicates().shape[0] > 200


def test_also_after_an_interruption(visits, tmp_path, interruption):
    with interruption(5):
        release(visits, tmp_path, person="who")
    out, _ = release(visits, tmp_path, person="who", resume=True)
    assert disagreeing(out) == 0.0


def test_two_releases_of_a_person_differ(visits, tmp_path):
    """The secret is drawn anew for each release and kept nowhere."""
    outs = [release(visits, tmp_path, person="who", keep_order=True)[0] for _ in range(2)]
    assert not outs[0].equals(outs[1])


def test_a_column_that_is_not_there(visits, tmp_path):
    with pytest.raises(InputError, match="'nobody' is missing"):
        release(visits, tmp_path, person="nobody")


def test_the_audit_keeps_the_rows_of_a_person_together():
    people = np.random.default_rng(0).integers(0, 200, 1000)
    parts = split_rows(None, None, 1000, 10_000, 0, people)
    sides = [set(people[part]) for part in (parts.train, parts.validation, parts.test)]
    assert not (sides[0] & sides[1]) | (sides[0] & sides[2]) | (sides[1] & sides[2])
    assert sum(map(len, sides)) == len(set(people))
    # The control: without a word they are split apart.
    apart = split_rows(None, None, 1000, 10_000, 0)
    assert set(people[apart.train]) & set(people[apart.test])


def test_the_audit_sees_the_disagreement():
    """S shows in nothing but whether the two rows of a person agree."""
    generator = np.random.default_rng(0)
    sex = generator.integers(0, 2, 600)
    value = generator.integers(0, 5, 600)
    other = np.where(sex == 1, (value + generator.integers(1, 5, 600)) % 5, value)
    released = pd.DataFrame({"value": np.concatenate([value, other]), "noise": generator.normal(size=1200).round(2)})
    people, s = np.tile(np.arange(600), 2), np.tile(sex, 2)
    order = generator.permutation(1200)
    released, people, s = released.iloc[order].reset_index(drop=True), people[order], s[order]
    result = fv.audit(released, s, clusters=people, verbose=False)
    assert result.valid
    assert result.max_advantage > 0.4


def test_rows_without_a_name_are_people_of_their_own(visits, tmp_path):
    frame = pd.read_csv(visits / "people.csv").assign(who=None)
    frame.loc[frame.index[0], "who"] = "p0"
    write(tmp_path, frame)
    release_file(
        tmp_path / "people.csv",
        visits / "sex.veil",
        tmp_path / "out.csv",
        replace(QUIET, again=True, person="who", keep_order=True),
    )
    out = pd.read_csv(tmp_path / "out.csv").drop(columns="who")
    groups = frame.drop(columns=["who"]).fillna("-").astype(str).agg("|".join, axis=1).to_numpy()
    assert (out.fillna("-").groupby(groups).nunique() > 1).any(axis=1).mean() > 0.5
