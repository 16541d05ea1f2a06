"""Veil files and checkpoints: no code, no rows, tampering refused, exact resume."""

import json
import zipfile
from dataclasses import replace

import pytest
import torch

import fairveil as fv
from fairveil import FairEncoder, VeilFileError
from fairveil.training.game import Game
from helpers import QUICK, people


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    X, S, _ = small
    path = tmp_path_factory.mktemp("veil") / "sex.veil"
    FairEncoder(50.0, training=QUICK, verbose=False, random_state=0).fit(X, sensitive_features=S["sex"]).save(path)
    return path


def test_a_veil_holds_three_parts_and_no_pickle(saved):
    with zipfile.ZipFile(saved) as archive:
        assert sorted(archive.namelist()) == ["manifest.json", "sha256", "weights.safetensors"]
        manifest = json.loads(archive.read("manifest.json"))
    assert set(manifest) >= {"format", "schema", "architecture", "distortion", "history", "parameters"}


def longest_list(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = len(value) if isinstance(value, list) else 0
    return max([own, *(longest_list(part) for part in parts)])


@pytest.mark.parametrize("architecture", ["feedforward", "transport"])
def test_nothing_in_a_veil_grows_with_the_rows(architecture, tmp_path):
    """No list and no tensor dimension is nearly as long as the table: there is no room for rows."""
    X, S, _ = people(3000)
    path = tmp_path / "sex.veil"
    FairEncoder(50.0, architecture=architecture, training=QUICK, verbose=False, random_state=0).fit(
        X, sensitive_features=S["sex"]
    ).save(path)
    with zipfile.ZipFile(path) as archive:
        assert longest_list(json.loads(archive.read("manifest.json"))) < len(X) / 4
    assert all(max(p.shape) < len(X) / 4 for p in fv.load(path).veil_.encoder.parameters() if p.numel())


def test_the_same_veil_is_the_same_bytes(saved, tmp_path):
    fv.load(saved).save(tmp_path / "again.veil")
    assert (tmp_path / "again.veil").read_bytes() == saved.read_bytes()


def test_any_flipped_bit_is_refused_or_harmless(saved, tmp_path):
    """No flipped bit may change what is loaded; most are refused."""
    original = saved.read_bytes()
    truth = fv.load(saved)
    refused = 0
    positions = range(0, len(original), max(1, len(original) // 150))
    for position in positions:
        broken = bytearray(original)
        broken[position] ^= 0x10
        path = tmp_path / "broken.veil"
        path.write_bytes(bytes(broken))
        try:
            loaded = fv.load(path)
        except VeilFileError:
            refused += 1
            continue
        same = zip(loaded.veil_.encoder.parameters(), truth.veil_.encoder.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in same)
        assert loaded.schema_ == truth.schema_
    assert refused > 0.9 * len(positions)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all", b"\x00" * 100])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.veil"
    path.write_bytes(content)
    with pytest.raises(VeilFileError, match=r"x\.veil"):
        fv.load(path)


def test_an_absent_file_is_said_to_be_absent(tmp_path):
    with pytest.raises(FileNotFoundError):
        fv.load(tmp_path / "nowhere.veil")


def test_a_failed_write_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "sex.veil"
    path.write_bytes(saved.read_bytes())
    encoder = fv.load(saved)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        encoder.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["sex.veil"]


def test_a_module_of_ones_own_cannot_be_saved(small, tmp_path):
    X, S, _ = small
    encoder = FairEncoder(50.0, architecture=torch.nn.Linear, training=QUICK, verbose=False)
    encoder.fit(X, sensitive_features=S["sex"])
    with pytest.raises(fv.InputError, match="no code"):
        encoder.save(tmp_path / "own.veil")


def saving_to(path, settings):
    return {**settings, "training": replace(settings["training"], checkpoint=path)}


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop_at", [5, 9])
def test_resume_is_exact(small, tmp_path, monkeypatch, stop_at):
    X, S, _ = small
    settings = {"training": QUICK, "verbose": False, "random_state": 1}
    whole = FairEncoder(50.0, **settings).fit(X, sensitive_features=S["sex"])
    path = tmp_path / "state.checkpoint"
    step = Game.encoder_step

    def interrupted(self, *given):
        if self.step == stop_at:
            raise Interrupted
        step(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Game, "encoder_step", interrupted)
        with pytest.raises(Interrupted):
            FairEncoder(50.0, **saving_to(path, settings)).fit(X, sensitive_features=S["sex"])
    resumed = FairEncoder(50.0, **saving_to(path, settings)).fit(X, sensitive_features=S["sex"])
    for a, b in zip(whole.veil_.encoder.parameters(), resumed.veil_.encoder.parameters(), strict=True):
        assert torch.equal(a, b)
    assert resumed.distortion_ == whole.distortion_
    finished = FairEncoder(50.0, **saving_to(path, settings)).fit(X, sensitive_features=S["sex"])
    assert finished.distortion_ == whole.distortion_


def test_a_checkpoint_of_other_data_is_refused(small, tmp_path):
    X, S, _ = small
    path = tmp_path / "state.checkpoint"
    FairEncoder(50.0, training=replace(QUICK, checkpoint=path), verbose=False, random_state=1).fit(
        X, sensitive_features=S["sex"]
    )
    with pytest.raises(VeilFileError, match="other data or other settings"):
        FairEncoder(40.0, training=replace(QUICK, checkpoint=path), verbose=False, random_state=1).fit(
            X, sensitive_features=S["sex"]
        )
    schema = fv.Schema.infer(X).edit("role", role="keep")
    with pytest.raises(VeilFileError, match="other data or other settings"):
        FairEncoder(50.0, training=replace(QUICK, checkpoint=path), verbose=False, random_state=1, schema=schema).fit(
            X, sensitive_features=S["sex"]
        )
    with pytest.raises(VeilFileError, match="not a veil"):
        fv.load(path)
