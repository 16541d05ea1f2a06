"""The audit as a whole: its parts, its controls, what it refuses, what it writes."""

import math
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fairlearn.preprocessing import CorrelationRemover

import fairveil as fv
from fairveil import AuditResult, InputError, audit
from fairveil.auditing.attackers import battery
from fairveil.theory import gaussian
from helpers import leak, noise_table


def test_an_order_within_blocks_is_found():
    frame, s, _ = noise_table(3000, 0)
    order = np.concatenate([np.argsort(s[:2000], kind="stable"), 2000 + np.argsort(s[2000:], kind="stable")])
    split = np.repeat(["train", "test"], [2000, 1000])
    found = audit(frame.iloc[order].reset_index(drop=True), s[order], split=split, verbose=False)
    assert found.leakage["accuracy"].iloc[0] > 0.85


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    rows = 3000
    s = generator.choice(["<b>f</b>", "m"], rows, p=[0.4, 0.6])
    man = (s == "m").astype(int)
    original = pd.DataFrame({
        "height": (165 + 12 * man + 6 * generator.normal(size=rows)).round(1),
        "job": np.where(generator.random(rows) < 0.5 + 0.3 * man, "a$b", "<script>"),
    })  # fmt: skip
    skilled = ((original["height"] > 172).to_numpy() ^ (generator.random(rows) < 0.1)).astype(int)
    return original, s, skilled, generator


@pytest.fixture(scope="module")
def result(table):
    original, s, skilled, generator = table
    released = original.assign(height=(original["height"] + 15 * generator.normal(size=len(s))).round(1))
    wage = original["height"] * 10 + generator.normal(size=len(s)) * 30
    return audit(released, pd.Series(s, name="sex"), {"skilled": skilled, "wage": wage.to_numpy()}, original=original,
                 test_on_original=True, verbose=False)  # fmt: skip


def test_an_audit_has_all_its_parts(result):
    assert result.valid
    assert result.found
    assert result.controls.set_index("control")["passed"].to_dict() == {
        "original data": True, "planted leak": True, "shuffled S": True,
    }  # fmt: skip
    assert set(result.attacks["view"]) == {"values", "everything", "codes", "original"}
    assert result.leakage["accuracy"].iloc[0] >= result.attacks.query("view != 'original'")["accuracy"].max() - 1e-12
    assert result.max_advantage == result.leakage["advantage"].iloc[0]
    tasks = result.tasks.set_index(["target", "model", "tested_on"])
    assert set(tasks.index.get_level_values("tested_on")) == {"released", "original"}
    assert tasks.loc[("skilled", "LightGBM", "released"), "baseline"] == pytest.approx(0.9, abs=0.04)
    assert tasks.loc[("wage", "LightGBM", "released"), "measure"] == "r2"
    assert 0 < tasks.loc[("skilled", "LightGBM", "released"), "kept"] < 1
    nats = result.information.set_index("column")
    assert 0 < nats.loc["sex", "lower"] < nats.loc["sex", "entropy"]
    assert 0 < nats.loc["sex", "normalised"] < 1
    assert "strongest of" in result.verdict()
    assert len(result.certificate) == 0


@pytest.mark.parametrize(
    ("kind", "others"), [({}, set()), ({"images": True}, {"CNN", "MLP 512-256"}), ({"wide": True}, {"MLP 512-256"})]
)
def test_the_controls_of_a_quick_audit_are_run_by_several_families(kind, others):
    names = {attacker.name for attacker in battery("quick", **kind) if attacker.checks}
    assert names == {"linear", "LightGBM", "sparse linear", "crosses"} | others


def test_json_reads_back_the_same(result, tmp_path):
    text = result.to_json(tmp_path / "audit.json")
    for source in (text, tmp_path / "audit.json", str(tmp_path / "audit.json")):
        again = AuditResult.from_json(source)
        assert again.to_json() == text
        assert again.verdict() == result.verdict()
    pd.testing.assert_frame_equal(again.attacks, result.attacks, check_dtype=False)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="not an audit"):
        AuditResult.from_json(tmp_path / "other.json")


def test_the_page_is_self_contained_and_escapes_what_comes_from_the_data(result, tmp_path):
    made = fv.certify(np.tile([0, 1], 50), np.repeat([0, 1], 50), alphabet=2, trained_on=())
    result.with_certificate(made).to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert page.index('class="verdict') < page.index("<img")
    assert page.count("data:image/png;base64,") == 5
    assert "&lt;b&gt;f&lt;/b&gt;" in page
    assert "<b>f</b>" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "<script" not in page
    assert "certified bound" in page
    with pytest.raises(FileNotFoundError, match="no folder"):
        result.to_html(tmp_path / "absent" / "audit.html")


def test_small_counts_are_not_shown_on_the_page(result, tmp_path):
    few = result.groups.assign(rows=[7, 1043])
    replace(result, groups=few).to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "fewer than 10" in page
    assert "<td>7</td>" not in page
    assert "1,043" not in page  # it would tell the other by the total


def test_the_terminal_summary_starts_with_the_verdict(result, capsys):
    result.summary()
    shown = capsys.readouterr().out
    assert shown.startswith("The strongest of")
    assert "planted leak" in shown


def test_several_sensitive_columns_are_attacked_alone_and_together():
    frame, s, generator = noise_table(2500, 0)
    t = generator.integers(0, 2, len(s))
    secrets = pd.DataFrame({"s": s, "t": t})
    released = frame.assign(e=(s ^ t) + 0.0)  # tells neither, but both together
    found = audit(released, secrets, verbose=False).leakage.set_index("sensitive")
    assert not found.loc["s", "found"]
    assert not found.loc["t", "found"]
    assert found.loc["s & t", "found"]


def test_small_tables_rare_classes_and_strange_names_go_through(capsys):
    frame, s, generator = noise_table(240, 0)
    target = generator.choice(["often", "seldom"], 240, p=[0.95, 0.05])
    result = audit(frame.assign(a=frame["a"] + 3 * s), pd.Series(s, name="income[usd] [/b]"), {"t": target},
                   random_state=np.int64(3), verbose=False)  # fmt: skip
    assert result.valid
    assert AuditResult.from_json(result.to_json()).max_advantage == result.max_advantage
    result.summary()
    assert "income[usd] [/b]" in capsys.readouterr().out


def test_the_joint_value_of_a_class_and_a_number_is_attacked():
    frame, s, generator = noise_table(2500, 0)
    age = generator.normal(size=2500)
    released = frame.assign(e=np.where(s == 1, age, -age))  # of neither alone, of both together
    found = audit(released, pd.DataFrame({"s": s, "age": age}), verbose=False).leakage.set_index("sensitive")
    assert found.loc["s & age", "found"]


def test_the_release_beside_the_originals_shows_what_it_adds():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 3000)
    original = pd.DataFrame({"x": (generator.normal(size=3000) + 0.5 * s).round(3)})
    swapped = original.assign(x=np.where(s == 1, original["x"] + 0.001, original["x"]).round(3))
    adds = audit(swapped, s, original=original, verbose=False).attacks.query("view == 'original'").iloc[0]
    assert adds["added_low"] > 0.2
    same = audit(original + 0.0, s, original=original, verbose=False).attacks.query("view == 'original'").iloc[0]
    assert same["added_low"] <= 0.0


def test_rows_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules["fairveil.auditing.case"]._MOST_ROWS, "quick", 400)
    frame, s = leak("linear", rows=3000)
    result = audit(frame, s, verbose=False)
    assert result.settings["rows"] == {"train": 400, "validation": 100, "test": 400}


def test_a_continuous_s_is_attacked_by_regression():
    generator = np.random.default_rng(0)
    age = generator.normal(40, 10, 3000)
    released = pd.DataFrame({"x": age + 10 * generator.normal(size=3000), "y": generator.normal(size=3000)})
    found = audit(pl.from_pandas(released), pl.Series("age", age), verbose=False)
    assert found.valid
    row = found.leakage.iloc[0]
    assert row["advantage_low"] <= 0.5 <= row["advantage_high"] + 0.02  # R^2 of the best linear guess is 1/2
    assert row["correlation"] == pytest.approx(math.sqrt(0.5), abs=0.05)
    free = audit(released[["y"]].assign(z=generator.normal(size=3000)), age, verbose=False)
    assert not free.found


def test_further_draws_help_the_attacker_who_owns_the_encoder():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 1500)
    center = np.where(s == 1, 0.4, -0.4)

    def draw():
        return pd.DataFrame({"x": center + generator.normal(size=1500), "y": generator.normal(size=1500)})

    first = draw()
    with pytest.raises(InputError, match="same release again"):
        audit(first, s, draw=lambda: first, verbose=False)
    result = audit(first, s, draw=draw, verbose=False)
    assert result.settings["draws"] == 16
    assert result.found
    with pytest.raises(InputError, match="another release"):
        audit(draw(), s, draw=lambda: draw()[:10], verbose=False)


def test_images_are_attacked_by_a_convolution():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 900)
    images = generator.normal(size=(900, 8, 8))
    spot = generator.integers(0, 6, size=(900, 2))
    for image, (i, j), told in zip(images, spot, s, strict=True):
        image[i : i + 2, j : j + 2] += 3.0 * told  # somewhere: no pixel tells alone
    result = audit(images, s, verbose=False)
    assert set(result.attacks["attacker"]) >= {"CNN", "LightGBM", "linear", "nearest neighbours"}
    assert result.attacks.set_index("attacker").loc["CNN", "accuracy"] > 0.9


def test_an_audit_whose_controls_fail_is_invalid_and_not_reported(tmp_path, capsys):
    frame, s, _ = noise_table(600, 0)
    useless = audit(frame, s, original=frame, verbose=False)  # the original tells nothing of S either
    assert not useless.valid
    assert "original data" in useless.reasons[0]
    assert useless.verdict().startswith("INVALID: nothing is reported")
    for name in ("found", "max_advantage"):
        with pytest.raises(InputError, match="invalid"):
            getattr(useless, name)
    useless.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "<img" not in page
    assert "Controls" in page
    useless.summary()
    assert "Attacks" not in capsys.readouterr().out


def test_correlation_remover_is_caught():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 3000)
    x = np.column_stack([s + generator.normal(size=3000), generator.integers(0, 3, 3000)])
    cleaned = CorrelationRemover(sensitive_feature_ids=[2]).fit_transform(np.column_stack([x, s]))
    result = audit(pd.DataFrame(cleaned, columns=["a", "b"]), s, verbose=False)
    assert result.leakage["accuracy"].iloc[0] > 0.99  # integers minus a mean of the group show the group


def test_a_known_channel_brackets_the_information():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 4000)
    x = np.outer(2 * s - 1, [0.5, 0.5]) + 0.1 * generator.normal(size=(4000, 2))
    released = (x + generator.normal(size=x.shape)).round(4)

    def log_density(a, b):
        return -0.5 * ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2) - math.log(2 * math.pi)

    frames = [pd.DataFrame(values, columns=["a", "b"]) for values in (released, x)]
    row = audit(frames[0], s, original=frames[1], log_density=log_density, verbose=False).information.iloc[0]
    exact = gaussian.mutual_information(gaussian.separation([0.5, 0.5], [1.01, 1.01]), 0.5)
    assert row["lower_low"] <= exact <= row["upper_high"]
    with pytest.raises(InputError, match="tables of numbers"):
        audit(frames[0], s, log_density=log_density, verbose=False)


FRAME, SECRET, _ = noise_table(400, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sensitive_features": SECRET[:100]}, "400 rows, the sensitive column 'sensitive' has 100"),
        ({"targets": {"y": SECRET[:100]}}, "target column 'y'"),
        ({"original": FRAME[:10]}, "the original 10"),
        ({"sensitive_features": np.zeros(400)}, "one single value"),
        ({"sensitive_features": np.where(np.arange(400) < 2, "rare", "common")}, "the smallest has 2"),
        ({"released": FRAME.assign(s=SECRET)}, "is the sensitive column"),
        ({"released": FRAME.assign(s=np.where(SECRET == 1, "x", "y"))}, "is the sensitive column"),
        ({"released": np.where(np.eye(400)[:, :5] == 1, np.nan, 0.0)}, "NaN or infinity"),
        ({"released": FRAME.assign(a=np.inf)}, "infinity in 'a'"),
        (
            {"released": FRAME.assign(a=np.where(np.arange(400) == 3, np.nan, 0.0)), "original": FRAME},
            "original has none",
        ),
        ({"released": FRAME[:50], "sensitive_features": SECRET[:50]}, "at least 200"),
        ({"released": pd.DataFrame(index=range(400))}, "no columns"),
        ({"split": ["train"] * 400}, "training and test"),
        ({"split": ["training"] * 400}, "only"),
        ({"split": ["train"]}, "each of the 400"),
        ({"profile": "deep"}, "profile"),
        ({"targets": {"y": np.zeros(400)}}, "target column 'y' holds one single value"),
        ({"split": np.where(SECRET == 1, "train", "test")}, "Use another split"),
        ({"released": FRAME.assign(a=[[1]] * 400)}, "'a'"),
        ({"original": FRAME[["a"]], "test_on_original": True, "targets": {"y": SECRET}}, "same columns"),
        ({"confidence": 0}, "confidence"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_input_is_named(arguments, message):
    plain = {"released": FRAME, "sensitive_features": SECRET, "verbose": False}
    with pytest.raises(InputError, match=re.escape(message)):
        audit(**{**plain, **arguments})
