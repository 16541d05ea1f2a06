"""`fairveil release --by matching`: what is written, recorded and refused."""

import json
import re
import stat

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fairveil import BudgetNotMet, InputError
from fairveil.cli.app import app
from fairveil.workflows import Options, audit_file, inspect_file, open_table, read_card, read_schema, record_audit
from fairveil.workflows.release import matching
from fairveil.workflows.release.card import card_path, card_text, write_card
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.matching import MatchingJob, release_by_matching
from releases import CANARY_NUMBER, CANARY_TEXT, table, write

QUIET = Options(show_progress=False)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRVEIL_STATE_HOME", str(tmp_path / "state"))
    path = write(tmp_path, table(700))
    (tmp_path / "schema.yaml").write_text(inspect_file(open_table(path), ("sex",)).to_yaml())
    return tmp_path


def released(place, target="out.csv", source="people.csv", options=QUIET, **limits):
    card = release_by_matching(place / source, place / "schema.yaml", place / target, options, **limits)
    path = place / target
    return (pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)), card


@pytest.mark.parametrize("target", ["out.csv", "out.parquet"])
def test_a_release_is_shuffled_complete_and_recorded(place, target):
    out, card = released(place, target)
    original, schema = table(700), read_schema(place / "schema.yaml")
    assert list(out) == [name for name in original if name != "sex"]
    assert len(out) == 700 == card["release"]["rows"]
    assert out["height"].between(schema["height"].lower, schema["height"].upper).all()
    assert CANARY_TEXT not in set(out["role"])
    assert out["height"].max() < CANARY_NUMBER
    assert abs(out["role"].value_counts()["husband"] - original["role"].value_counts()["husband"]) <= 3  # the canary
    assert card["matching"]["moved"] == 1.0
    assert card["certificate"]["bound"] <= 0.05
    assert read_card(card_path(place / target)) == card
    ledger = Ledger.of(place / "schema.yaml")
    [entry] = ledger.entries
    order = ledger.order(entry)
    assert not np.array_equal(order, np.arange(700))
    assert stat.S_IMODE((place / "schema.yaml.ledger").stat().st_mode) == 0o700
    assert not list((place / "schema.yaml.ledger").glob("secret-*"))
    # Rows in the order of the ledger are near the input's, shuffled ones are not.
    back = out.iloc[np.argsort(order)].reset_index(drop=True)
    same = [(frame["skill"] == original["skill"]).mean() for frame in (back, out)]
    assert same[0] > same[1] + 0.1
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_the_same_rows_are_not_released_twice_and_secrets_differ(place):
    first, _ = released(place)
    with pytest.raises(InputError, match="released with this veil before"):
        released(place, "again.csv")
    assert not (place / "again.csv").exists()
    second, card = released(place, "again.csv", options=Options(show_progress=False, again=True))
    assert card["earlier_releases"]["count"] == 1
    assert not first.equals(second)
    seeded = Options(show_progress=False, again=True, seed=3)
    one, two = (released(place, f"{i}.csv", options=seeded)[0] for i in range(2))
    pd.testing.assert_frame_equal(one, two)


def test_an_audit_finds_its_rows_and_its_card(place):
    released(place)
    result = audit_file(place / "out.csv", place / "people.csv", ["sex"], show_progress=False)
    assert result.seal
    assert result.leakage["auc"].max() < 0.65
    assert record_audit(place / "out.csv", result)
    assert read_card(card_path(place / "out.csv"))["audit"]["verdict"] == result.verdict()
    changed = table(700)
    changed.loc[0, "skill"] = 10 - changed.loc[0, "skill"]
    write(place, changed)
    with pytest.raises(InputError, match="is not the table from which"):
        audit_file(place / "out.csv", place / "people.csv", ["sex"], show_progress=False)


def test_a_budget_is_kept_or_nothing_is_written(place):
    _, card = released(place, certified=None, budget=0.7)
    assert 0.6 < card["distortion"]["total"] <= 0.7
    [entry] = Ledger.of(place / "schema.yaml").entries
    assert sum(entry.distortion.values()) <= 0.7
    assert "0.7" in card_text(card)
    with pytest.raises(BudgetNotMet):
        released(place, "other.csv", certified=0.01, budget=0.3, options=Options(show_progress=False, again=True))
    assert not (place / "other.csv").exists()
    assert not list(place.glob(".*"))
    assert not list((place / "schema.yaml.ledger").glob("secret-*"))


def test_an_interrupted_release_leaves_no_file_and_no_entry(place, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(matching, "hand_over", stop)
        with pytest.raises(KeyboardInterrupt):
            released(place)
    assert not (place / "out.csv").exists()
    assert not Ledger.of(place / "schema.yaml").entries
    released(place)
    assert not list(place.glob(".*"))
    assert not list((place / "schema.yaml.ledger").glob("secret-*"))


def test_roles_decide_what_stays(place):
    text = (place / "schema.yaml").read_text()
    job = MatchingJob.of(open_table(place / "people.csv"), place / "schema.yaml", place / "out.csv", QUIET)
    changed = re.sub("(name: hired.*?role: )encode", r"\1keep", text, count=1, flags=re.DOTALL)
    assert changed != text
    (place / "schema.yaml").write_text(changed)
    out, card = released(place)
    [entry] = Ledger.of(place / "schema.yaml").entries
    order = Ledger.of(place / "schema.yaml").order(entry)
    assert (out["hired"].to_numpy() == table(700)["hired"].to_numpy()[order]).all()
    assert any("hired" in text for text in card["limits"])
    assert job.sensitive_names == ["sex"]


def test_a_large_table_needs_permission(place, monkeypatch):
    monkeypatch.setattr(matching, "_CELL_BYTES", 10**7)
    with pytest.raises(InputError, match="--memory"):
        released(place)


def test_crafted_cards_are_refused(place):
    _, card = released(place)
    for change in ({"matching": None}, {"matching": {"levels": 3}}, {"matching": {**card["matching"], "moved": "x"}}):
        write_card(card_path(place / "out.csv"), {**card, "matching": card["matching"]})
        values = json.loads(card_path(place / "out.csv").read_text()) | change
        card_path(place / "out.csv").write_text(json.dumps(values))
        with pytest.raises(InputError, match="not a card"):
            read_card(card_path(place / "out.csv"))


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_line(place):
    given = ("--by", "matching", "--schema", place / "schema.yaml", "--quiet")
    done = run("release", place / "people.csv", *given, "-o", place / "out.csv")
    assert done.exit_code == 0, done.output
    assert "Certified by construction" in done.output
    assert "schema.yaml.ledger private" in done.output
    again = run("release", place / "people.csv", *given, "--again", "--budget", "0.7", "-o", place / "b.csv", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["veil"]["budget"] == 0.7
    assert run("card", place / "out.csv").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "magic"], "--by must be"),
        ([], "Name the veil"),
        (["--by", "matching"], "needs --schema"),
        (["--by", "matching", "--schema", "{}/schema.yaml", "--veil", "x.veil"], "omit --veil"),
        (["--veil", "x.veil", "--budget", "1"], "belong to --by matching"),
        (["--by", "matching", "--schema", "{}/schema.yaml", "--keep-order", "--resume"], "--keep-order, --resume"),
        (["--by", "matching", "--schema", "{}/none.yaml"], "no schema"),
        (["--by", "matching", "--schema", "{}/people.csv"], "must end in"),
        (["--by", "matching", "--schema", "{}/schema.yaml", "--certified", "2"], "certified"),
        (["--by", "matching", "--schema", "{}/schema.yaml", "--budget", "nan"], "budget"),
        (["--by", "matching", "--schema", "{}/empty.yaml"], "not a schema"),
        (["--by", "matching", "--schema", "{}/open.yaml"], "Nothing to hide"),
    ],
)
def test_bad_usage(place, arguments, message):
    (place / "empty.yaml").write_text("{}")
    (place / "open.yaml").write_text((place / "schema.yaml").read_text().replace("role: sensitive", "role: drop"))
    arguments = [argument.format(place) for argument in arguments]
    done = run("release", place / "people.csv", "-o", place / "out.csv", *arguments)
    assert isinstance(done.exception, InputError), done.output
    assert message in str(done.exception)
    assert not (place / "out.csv").exists()


def test_bad_inputs(place):
    frame = table(700)
    write(place, frame.drop(columns="town"), "short.csv")
    write(place, frame.assign(extra=1), "more.csv")
    write(place, frame.assign(sex="f"), "one.csv")
    write(place, frame.head(20), "few.csv")
    for source, message in (
        ("short.csv", "missing from"),
        ("more.csv", "no role"),
        ("one.csv", "single value"),
        ("few.csv", "--few-rows"),
    ):
        with pytest.raises(InputError, match=message):
            released(place, source=source)
    for target, message in (("schema.yaml", "must end in"), ("people.csv", "overwrite|replace"), ("out.txt", "end in")):
        with pytest.raises(InputError, match=message):
            released(place, target)
    assert not Ledger.of(place / "schema.yaml").entries
