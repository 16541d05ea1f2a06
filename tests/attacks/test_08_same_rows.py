"""The ledger did not know rows as float32 Parquet, shifted by 0.001, with trailing blanks, or with a copied veil."""

import numpy as np
import pandas as pd
import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.release.ledger import MOST_OVERLAP, Ledger
from fairveil.workflows.release.sketch import Sketch, overlap, row_hashes
from releases import table, write


def release(place, source, target, veil="sex.veil"):
    return release_file(place / source, place / veil, place / target, Options(show_progress=False, workers=1))


def disguised(how):
    frame = pd.DataFrame(table())
    if how == "float32":
        return frame.assign(height=frame["height"].astype(np.float32)), "again.parquet"
    if how == "shifted":
        return frame.assign(height=frame["height"] + 0.001), "again.csv"
    if how == "blanks":
        return frame.assign(role=frame["role"] + "  ", town="\t" + frame["town"]), "again.parquet"
    if how == "sorted":
        return frame.sort_values(["height", "role"]), "again.csv"
    if how == "other columns":
        return frame[frame.columns[::-1]], "again.csv"
    return frame, "again.csv"


@pytest.mark.parametrize("how", ["float32", "shifted", "blanks", "sorted", "other columns", "copied veil"])
def test_rows_are_known_again_in_disguise(place, how):
    release(place, "people.csv", "out.csv")
    frame, name = disguised(how)
    write(place, frame, name)
    veil = "sex.veil"
    if how == "copied veil":
        veil = "elsewhere/copy.veil"
        (place / "elsewhere").mkdir()
        (place / veil).write_bytes((place / "sex.veil").read_bytes())
    with pytest.raises(InputError, match=r"% of these rows were released with this veil before"):
        release(place, name, "twice.csv", veil)
    assert not (place / "twice.csv").exists()


def test_other_people_are_not_taken_for_the_same(place):
    """The control, and with a copy of the veil."""
    release(place, "people.csv", "out.csv")
    write(place, table(900, seed=5), "others.csv")
    release(place, "others.csv", "others-out.csv")
    (place / "copy.veil").write_bytes((place / "sex.veil").read_bytes())
    write(place, table(900, seed=6), "more.csv")
    release(place, "more.csv", "more-out.csv", "copy.veil")
    assert len(Ledger.of(place / "sex.veil").entries) == 3


def test_a_veil_that_was_fitted_anew_under_the_same_name_has_its_own_book(place, made):
    from releases import fitted

    release(place, "people.csv", "out.csv")
    write(place, table(900, seed=5), "others.csv")
    fitted(place / "others.csv", place / "sex.veil")
    assert Ledger.of(place / "sex.veil").entries == []
    (place / "sex.veil").write_bytes((made / "sex.veil").read_bytes())
    assert len(Ledger.of(place / "sex.veil").entries) == 1


@pytest.mark.parametrize("share", [0.1, 0.19])
def test_rows_released_before_are_found_among_many_new_ones(place, share):
    """Below a fifth of the input nothing was said, so that any rows could be released again, a few at a time."""
    release(place, "people.csv", "out.csv")
    old = table()
    new = table(int(len(old) / share), seed=9)
    write(place, pd.concat([old, new.iloc[len(old) :]]), "diluted.csv")
    with pytest.raises(InputError, match="were released"):
        release(place, "diluted.csv", "diluted-out.csv")


def test_a_few_rows_from_each_of_many_releases_add_up(place):
    parts = [table(900, seed=20 + i) for i in range(6)]
    for i, part in enumerate(parts):
        write(place, part, f"{i}.csv")
        release(place, f"{i}.csv", f"{i}-out.csv")
    write(place, pd.concat([part.iloc[i * 150 : (i + 1) * 150] for i, part in enumerate(parts)]), "mosaic.csv")
    with pytest.raises(InputError, match=r"% of these rows were released"):
        release(place, "mosaic.csv", "mosaic-out.csv")


@pytest.mark.parametrize(("share", "refused"), [(0.0, False), (0.03, True), (0.1, True)])
def test_where_rows_tell_people_apart_few_are_enough(share, refused):
    """A table of many columns, in which hardly two people are alike."""
    codes = np.random.default_rng(0).integers(0, 20, (200_000, 8))
    earlier = Sketch.of(row_hashes(codes[:50_000], b"key"))
    new = np.concatenate([codes[: int(share * 100_000)], codes[50_000 : 150_000 - int(share * 100_000)]])
    found = overlap(Sketch.of(row_hashes(new, b"key")), [earlier])
    assert (found.sure > MOST_OVERLAP) == refused
    assert found.share == pytest.approx(share, abs=0.01)


def test_new_people_from_another_part_of_the_population_are_not_taken_for_old_ones():
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(20):
        broad = generator.integers(0, 6, (3000, 6))
        alike = np.where(generator.random((1000, 6)) < 0.6, 0, generator.integers(0, 6, (1000, 6)))
        found = overlap(Sketch.of(row_hashes(alike, b"key")), [Sketch.of(row_hashes(broad, b"key"))])
        refused += found.sure > MOST_OVERLAP
    assert refused <= 4


def test_the_same_file_is_known_where_all_rows_have_twins(place):
    """No row stands alone: nothing can be told of parts, but the whole is known; and that is said."""
    write(place, pd.concat([table()] * 2), "twins.csv")
    card = release(place, "twins.csv", "out.csv")
    assert "not a part of it" in card["release"]["warnings"][0]
    with pytest.raises(InputError, match="100 % of these rows"):
        release(place, "twins.csv", "twice.csv")
