"""The card of a release of one row told its noise: of 60 of them 16 showed by the distortion that it was changed."""

import json
import shutil

import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil.data.schema import Schema
from fairveil.workflows import Options, card_path, release_file
from releases import fitted, proposed, table, write


def release(place, rows, **options):
    write(place, table().head(rows), "few.csv")
    return release_file(
        place / "few.csv", place / "sex.veil", place / "out.csv", Options(show_progress=False, workers=1, **options)
    )


@pytest.mark.parametrize("rows", [1, 10, 49])
def test_a_few_rows_need_a_word(place, rows):
    with pytest.raises(InputError, match="fewer than 50"):
        release(place, rows)
    assert not (place / "out.csv").exists()
    assert not card_path(place / "out.csv").exists()


def test_cards_of_one_row_are_alike_whatever_was_drawn(place):
    cards, drawn = set(), set()
    for _ in range(25):
        card = release(place, 1, few_rows=True)
        drawn.add(pd.read_csv(place / "out.csv").to_csv())
        del card["release"]["sha256"]  # whoever has the card has the file
        cards.add(json.dumps(card))
        shutil.rmtree(place / "sex.veil.ledger")
    assert len(drawn) > 1
    assert len(cards) == 1
    assert "not reported" in card_path(place / "out.csv").with_suffix(".md").read_text()


@pytest.mark.parametrize(("rows", "told"), [(199, False), (200, True)])
def test_distortion_is_told_of_many_rows_and_rounded(place, rows, told):
    total = release(place, rows)["distortion"]["total"]
    assert (total is not None) == told
    if told:
        assert total == round(total, 2)


@pytest.mark.parametrize("rows", [100, 250])
def test_the_bound_holds_for_what_no_draw_has_a_part_in(made, place, rows):
    """Of a few rows only that can be looked at: to refuse by what was drawn would tell it."""
    schema = Schema(tuple(column for column in proposed(made / "people.csv").columns if column.name in ("role", "sex")))
    frame = pd.read_csv(place / "people.csv")[["role", "sex"]]
    fitted(write(place, frame, "roles.csv"), place / "roles.veil", schema, budget=0.9)
    known, unknown = frame.head(rows), frame.head(rows).assign(role="new")
    options, target = Options(show_progress=False, workers=1), place / "out.csv"
    with pytest.raises(InputError, match="above the budget"):
        release_file(write(place, unknown, "unknown.csv"), place / "roles.veil", target, options)
    assert not target.exists()
    release_file(write(place, known, "known.csv"), place / "roles.veil", target, options)  # the control
