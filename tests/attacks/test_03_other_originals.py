"""An audit against an original that was sorted since said "no more than chance" (true AUC 0.911), on the card too."""

import numpy as np
import pandas as pd
import pytest

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil.workflows import Options, audit_file, card_path, release_file
from fairveil.workflows import audit as checking
from releases import write


class Reached(Exception):
    """The attackers are let loose."""


@pytest.fixture
def scene(place, monkeypatch):
    def audit(*_, **__):
        raise Reached

    monkeypatch.setattr(checking, "audit", audit)
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", Options(show_progress=False, workers=1))
    return place


def audited(scene, original, **options):
    audit_file(scene / "out.csv", scene / original, ["sex"], show_progress=False, **options)


def changed(frame, how):
    if how == "sorted":
        return frame.sort_values("height")
    if how == "shuffled":
        return frame.sample(frac=1.0, random_state=0)
    if how == "another S":
        return frame.assign(sex=np.random.default_rng(0).permutation(frame["sex"]))
    if how == "two rows swapped":
        return frame.iloc[[1, 0, *range(2, len(frame))]]
    return frame.iloc[:-1]


@pytest.mark.parametrize("how", ["sorted", "shuffled", "another S", "two rows swapped", "one row less"])
@pytest.mark.parametrize("same_order", [False, True])
def test_an_audit_against_other_rows_is_refused(scene, how, same_order):
    before = sha256_of(card_path(scene / "out.csv"))
    write(scene, changed(pd.read_csv(scene / "people.csv"), how), "other.csv")
    with pytest.raises(InputError, match=r"is not the table from which|the same number of rows"):
        audited(scene, "other.csv", same_order=same_order)
    assert sha256_of(card_path(scene / "out.csv")) == before


@pytest.mark.parametrize("kind", ["people.csv", "people.parquet"])
def test_the_rows_of_the_release_are_known_in_any_format(scene, kind):
    """The control."""
    write(scene, pd.read_csv(scene / "people.csv"), kind)
    with pytest.raises(Reached):
        audited(scene, kind)


def test_a_shuffled_release_is_not_audited_in_the_order_of_the_original(scene, tmp_path_factory, monkeypatch):
    """Without the ledger nobody knows the order; the card says that there is none."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("out.csv", "out.csv.card.json", "people.csv"):
        (elsewhere / name).write_bytes((scene / name).read_bytes())
    monkeypatch.setenv("FAIRVEIL_STATE_HOME", str(elsewhere / "state"))
    monkeypatch.chdir(elsewhere)
    with pytest.raises(InputError, match="is unknown"):
        audited(elsewhere, "people.csv", same_order=True)
    (elsewhere / "out.csv.card.json").unlink()  # a file of another tool
    with pytest.raises(Reached):
        audited(elsewhere, "people.csv", same_order=True)


def test_rows_that_do_not_belong_together_are_found_by_their_distortion(scene, monkeypatch):
    """Even if somebody has changed the order that the ledger keeps."""
    [ledger] = scene.glob("*.ledger")
    [order] = ledger.glob("order-*")
    np.random.default_rng(0).permutation(900).astype(np.int64).tofile(order)
    with pytest.raises(InputError, match="do not match"):
        audited(scene, "people.csv")
    order.write_bytes(order.read_bytes()[:-8])
    with pytest.raises(InputError, match="is damaged"):
        audited(scene, "people.csv")
