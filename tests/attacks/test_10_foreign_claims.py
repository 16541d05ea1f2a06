"""Audits and certificates were not bound to a release.

A certificate of a `matrix` veil was written on the card of a `transport` release, an audit of one table on the card of
another, and a certificate that somebody typed.
"""

import json

import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil.auditing import AuditResult, Certificate
from fairveil.workflows import Options, card_path, read_card, release_file, with_audit, with_certificate, write_card
from fairveil.workflows.audit import sealed_certificate
from fairveil.workflows.release.ledger import Ledger
from releases import fitted, table, write


def an_audit(**more):
    """What an audit that found nothing looks like."""
    row = {"sensitive": "sex", "rows": 300, "attackers": 5, "majority": 0.6, "advantage": 0.0, "found": False}
    for name, value in (("accuracy", 0.6), ("auc", 0.5), ("worst_gap", 0.01)):
        row |= {name: value, f"{name}_low": value - 0.01, f"{name}_high": value + 0.05}
    row["p_value"] = 0.9
    empty = pd.DataFrame()
    return AuditResult(True, (), pd.DataFrame([row]), empty, empty, empty, empty, empty, empty, empty, None,
                       {"profile": "quick"}, {}, **more)  # fmt: skip


def a_certificate():
    pairs = pd.DataFrame([{"first": "f", "second": "m", "bound": 0.02}])
    return Certificate(
        0.02, 0.95, "demographic_parity", 0.01, 8, 5000, pairs, ("rows are independent.",), "5,000 rows."
    )


@pytest.fixture
def scene(place):
    """Two veils and a release by each."""
    write(place, table(900, seed=3), "others.csv")
    fitted(place / "others.csv", place / "other.veil")
    for source, veil, target in (("people.csv", "sex.veil", "out.csv"), ("others.csv", "other.veil", "other-out.csv")):
        release_file(place / source, place / veil, place / target, Options(show_progress=False, workers=1))
    return place


def card_and_ledger(scene):
    return read_card(card_path(scene / "out.csv")), Ledger.of(scene / "sex.veil")


def sealed_audit(scene, veil="sex.veil"):
    ledger = Ledger.of(scene / veil)
    subject = {"release": ledger.entries[0].sha256, "veil": ledger.veil_sha256}
    values = an_audit(subject=subject).to_dict()
    return {**values, "seal": ledger.seal(values)}


def test_the_audit_of_a_release_is_entered_on_its_card(scene):
    """The control, through a file."""
    card, ledger = card_and_ledger(scene)
    values = json.loads(json.dumps(sealed_audit(scene)))
    write_card(card_path(scene / "out.csv"), with_audit(card, values, ledger))
    assert "no more than chance" in read_card(card_path(scene / "out.csv"))["audit"]["verdict"]


def test_the_certificate_of_a_veil_is_entered_on_the_cards_of_its_releases(scene):
    card, ledger = card_and_ledger(scene)
    values = json.loads(json.dumps(sealed_certificate(a_certificate(), scene / "sex.veil")))
    assert "at most 0.0200" in with_certificate(card, values, ledger)["certificate"]["text"]


def test_an_audit_of_another_release_is_refused(scene):
    card, ledger = card_and_ledger(scene)
    with pytest.raises(InputError, match="not of the release that the card is about"):
        with_audit(card, sealed_audit(scene, "other.veil"), ledger)


def test_a_certificate_of_another_veil_is_refused(scene):
    card, ledger = card_and_ledger(scene)
    with pytest.raises(InputError, match="not of the veil that the card is about"):
        with_certificate(card, sealed_certificate(a_certificate(), scene / "other.veil"), ledger)


@pytest.mark.parametrize("forged", ["no subject", "right subject", "right subject and a seal of another ledger"])
def test_what_somebody_typed_is_refused(scene, forged):
    card, ledger = card_and_ledger(scene)
    subject = {"release": card["release"]["sha256"], "veil": card["veil"]["sha256"]}
    for values, enter in ((an_audit().to_dict(), with_audit), (a_certificate().to_dict(), with_certificate)):
        if forged != "no subject":
            values["subject"] = subject
        if "seal" in forged:
            values["seal"] = Ledger.of(scene / "other.veil").seal(values)
        with pytest.raises(InputError, match=r"not of the|not made with the ledger"):
            enter(card, values, ledger)


@pytest.mark.parametrize("name", ["bound", "confidence", "evidence", "pairs"])
def test_a_certificate_that_was_changed_is_refused(scene, name):
    card, ledger = card_and_ledger(scene)
    values = sealed_certificate(a_certificate(), scene / "sex.veil")
    values[name] = {"bound": 0.001, "confidence": 0.999, "evidence": "all rows.", "pairs": []}[name]
    with pytest.raises(InputError, match="or was changed since"):
        with_certificate(card, values, ledger)


def test_a_card_of_another_file_is_noticed(scene):
    from fairveil.workflows.release.recorded import card_of

    (scene / "out.csv").write_bytes((scene / "other-out.csv").read_bytes())
    with pytest.raises(InputError, match="not the file its card was written for"):
        card_of(scene / "out.csv")


def test_an_audit_of_another_column_is_refused(scene):
    card, ledger = card_and_ledger(scene)
    values = sealed_audit(scene)
    values["leakage"]["rows"][0][values["leakage"]["columns"].index("sensitive")] = "shoe size"
    values["seal"] = ledger.seal(values)
    with pytest.raises(InputError, match="of other columns than the release hides"):
        with_audit(card, values, ledger)


def test_a_seal_that_is_no_text_of_ours(scene):
    card, ledger = card_and_ledger(scene)
    with pytest.raises(InputError, match="not made with the ledger"):
        with_audit(card, {**sealed_audit(scene), "seal": "é"}, ledger)
