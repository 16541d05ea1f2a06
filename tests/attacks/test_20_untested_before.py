"""Places that nobody had looked at: read-only folders, pipes among images, labels of resumed images."""

import os

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil.data import images
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import images as streaming
from helpers import QUICK

OPTIONS = {"show_progress": False, "workers": 1}


@pytest.fixture
def faces(tmp_path):
    generator = np.random.default_rng(0)
    folder = tmp_path / "faces"
    folder.mkdir()
    sex = np.array(["f", "m"] * 30)
    for i in range(60):
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i:02d}.png")
    pd.DataFrame({"file": [f"{i:02d}.png" for i in range(60)], "sex": sex}).to_csv(tmp_path / "labels.csv", index=False)
    encoder = fv.FairEncoder(
        1e3, architecture="feedforward", sees_sensitive=True, training=QUICK, verbose=False, random_state=0
    )
    encoder.fit(images.read_folder(folder)[0], sensitive_features=pd.DataFrame({"sex": sex})).save(
        tmp_path / "face.veil"
    )
    return tmp_path


def release(faces, **options):
    return release_file(
        faces / "faces", faces / "face.veil", faces / "out", Options(**OPTIONS, **options), faces / "labels.csv"
    )


@pytest.mark.timeout(60)
def test_a_pipe_among_the_images_does_not_hang(faces):
    os.mkfifo(faces / "faces" / "99.png")
    with pytest.raises(InputError, match="not ordinary files"):
        release(faces)
    with pytest.raises(InputError, match="not ordinary files"):
        images.read_folder(faces / "faces")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["people.csv", "sex.veil", "schema.yaml"])
def test_a_pipe_for_a_file_does_not_hang(place, name, monkeypatch):
    from fairveil.cli import main

    path = place / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    schema = ["--schema", str(path)] if name == "schema.yaml" else []
    verb = ["fit", str(place / "people.csv"), "-s", "sex", "-o", str(place / "x.veil"), *schema]
    if name == "sex.veil":
        verb = ["release", str(place / "people.csv"), "--veil", str(path), "-o", str(place / "x.csv")]
    monkeypatch.setattr("sys.argv", ["fairveil", *verb])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_images_are_not_resumed_with_other_labels(faces, monkeypatch):
    """Half the images drawn for one S, and half for another, would tell which."""

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "folder_digest", lambda *a: stop() if len(a) == 1 else "digest")
        with pytest.raises(KeyboardInterrupt):
            release(faces)
    labels = pd.read_csv(faces / "labels.csv")
    labels.assign(sex=labels["sex"].map({"f": "m", "m": "f"})).to_csv(faces / "labels.csv", index=False)
    with pytest.raises(InputError, match="other settings or another input"):
        release(faces, resume=True)


def test_resumed_images_are_counted_in_full(faces, monkeypatch):
    """The distortion is that of all images, not only of those that were drawn after the interruption."""
    save, saved = streaming._save, []

    def stop(path, image):
        if len(saved) == 20:
            raise KeyboardInterrupt
        saved.append(path.name)
        save(path, image)

    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_save", stop)
        with pytest.raises(KeyboardInterrupt):
            release(faces, seed=5)
    card = release(faces, resume=True, seed=5)
    assert card["distortion"]["rows_measured"] == 60
    from fairveil.workflows.release.ledger import Ledger

    [entry] = Ledger.of(faces / "face.veil").entries
    order = Ledger.of(faces / "face.veil").order(entry)
    before, after = images.read_folder(faces / "faces")[0][order], images.read_folder(faces / "out")[0]
    spent = np.square((after.astype(float) - before) / 255).sum(axis=(1, 2, 3)).mean()
    assert entry.distortion["continuous"] == pytest.approx(spent, rel=1e-6)


def test_a_state_folder_that_cannot_be_written_is_done_without(place, monkeypatch):
    (place / "file").write_text("")
    monkeypatch.setenv("FAIRVEIL_STATE_HOME", str(place / "file" / "below"))
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", Options(**OPTIONS))
    with pytest.raises(InputError, match="were released"):
        release_file(place / "people.csv", place / "sex.veil", place / "twice.csv", Options(**OPTIONS))
