"""Loaders on tiny files in the layout of each distribution, and on the real data where it is present."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fairveil import DataNotFound, InputError
from fairveil.datasets import load_genki, load_har, load_utkface


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRVEIL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("load", "source"), [(load_genki, "MinimaxFilter"), (load_har, "10.24432/C54S4K"), (load_utkface, "UTKFace")]
)
def test_absent_data_is_named_with_its_source(home, load, source):
    with pytest.raises(DataNotFound, match=f"{source}(.|\n)*FAIRVEIL_DATA"):
        load()


# GENKI


def genki_file(path, rows=8):
    generator = np.random.default_rng(0)
    values = {}
    for part in ("train", "test"):
        values[f"X{part}"] = generator.random((256, rows)) * 1.1 - 0.05
        values[f"y1_{part}"] = (np.arange(rows) % 2 + 1)[None].astype(np.uint8)
        values[f"y2_{part}"] = (np.arange(rows) // 2 % 2 + 1)[None].astype(np.uint8)
    savemat(path, values)
    return values


def test_genki_reads_columns_as_images(home):
    values = genki_file(home / "genki.mat")
    train, test = load_genki(verify=False)
    assert train.X.shape == test.X.shape == (8, 16, 16)
    expected = values["Xtrain"][:, 3].reshape(16, 16, order="F").clip(0, 1)
    np.testing.assert_allclose(train.X[3], expected, rtol=1e-6)
    assert train.S["gender"].tolist()[:4] == ["male", "male", "female", "female"]
    assert train.targets["expression"].tolist()[:2] == ["not smiling", "smiling"]


def test_genki_refuses_another_file(home):
    genki_file(home / "genki.mat")
    with pytest.raises(InputError, match="SHA-256"):
        load_genki()
    savemat(home / "genki.mat", {"Xtrain": np.zeros((256, 4))})
    with pytest.raises(InputError, match="cannot be read as GENKI"):
        load_genki(verify=False)


# HAR


def har_files(rows=12):
    generator = np.random.default_rng(0)
    names = ["same()-X" if i in (3, 4) else f"feature-{i}" for i in range(561)]
    labels = ["WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"]
    files = {
        "features.txt": "\n".join(f"{i + 1} {name}" for i, name in enumerate(names)) + "\n",
        "activity_labels.txt": "\n".join(f"{i + 1} {label}" for i, label in enumerate(labels)) + "\n",
    }
    for part in ("train", "test"):
        x = generator.random((rows, 561)) * 2 - 1
        files[f"{part}/X_{part}.txt"] = "\n".join("  " + " ".join(f"{v: .7e}" for v in row) for row in x) + "\n"
        files[f"{part}/y_{part}.txt"] = "\n".join(str(i % 6 + 1) for i in range(rows)) + "\n"
        files[f"{part}/subject_{part}.txt"] = "\n".join(str(i % 5 + 1) for i in range(rows)) + "\n"
    return files


def as_folder(home, files):
    for name, text in files.items():
        path = home / "UCI HAR Dataset" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def as_zip(home, files):
    with zipfile.ZipFile(home / "UCI HAR Dataset.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(f"UCI HAR Dataset/{name}", text)


def as_tar(home, files):
    with tarfile.open(home / "uci_har.tar.xz", "w:xz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"UCI HAR Dataset/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("pack", [as_folder, as_zip, as_tar])
def test_har_from_every_layout(home, pack):
    pack(home, har_files())
    train, test = load_har("official", verify=False)
    assert train.X.shape == test.X.shape == (12, 561)
    assert train.S["subject"].tolist()[:6] == [1, 2, 3, 4, 5, 1]
    assert train.targets["activity"].tolist()[:2] == ["WALKING", "WALKING_UPSTAIRS"]
    assert train.X.columns.is_unique
    assert train.X.attrs["original"] is False
    pooled, rest = load_har(verify=False)
    assert len(pooled) + len(rest) == 24
    assert {*map(tuple, pooled.X.to_numpy()[:, :2])}.isdisjoint({*map(tuple, rest.X.to_numpy()[:, :2])})


def test_har_refuses_what_is_not_complete(home):
    files = har_files()
    as_folder(home, files)
    with pytest.raises(InputError, match="counts differ"):
        load_har()
    with pytest.raises(InputError, match="'pooled' or 'official'"):
        load_har("mine")
    (home / "UCI HAR Dataset" / "train" / "y_train.txt").unlink()
    with pytest.raises(InputError, match=r"train/y_train\.txt is missing"):
        load_har(verify=False)
    as_folder(home, {**files, "train/y_train.txt": "1\n2\n"})
    with pytest.raises(InputError, match="one label per row and kind"):
        load_har(verify=False)


def test_har_refuses_a_damaged_archive(home):
    (home / "uci_har.tar.xz").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="cannot be unpacked"):
        load_har()


# UTKFace

NAMES = [
    "25_1_2_20170116174525125.jpg.chip.jpg",
    "24_0_1_20170116220224657 .jpg.chip.jpg",
    "55_0_0_20170116232725357jpg.chip.jpg",
    "30_1_4_20170116174525126.jpg.chip.jpg",
    "5_1_0_20170116174525127.jpg.chip.jpg",
    "39_1_20170116174525125.jpg.chip.jpg",
    *(f"{20 + i}_{i % 2}_{i % 4}_2017011617452{i:04d}.jpg.chip.jpg" for i in range(12)),
]


def faces(side=20):
    generator = np.random.default_rng(0)
    for name in NAMES:
        content = io.BytesIO()
        Image.fromarray(generator.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(content, "JPEG")
        yield name, content.getvalue()


@pytest.mark.parametrize("packed", [True, False])
def test_utkface_reads_labels_from_names(home, packed):
    if packed:
        with zipfile.ZipFile(home / "UTKFace.zip", "w") as archive:
            for name, content in faces():
                archive.writestr(f"UTKFace/{name}", content)
    else:
        (home / "UTKFace").mkdir()
        for name, content in faces():
            (home / "UTKFace" / name).write_bytes(content)
    train, test = load_utkface(16, verify=False)
    assert len(train) + len(test) == 15  # neither "Others", nor the child, nor the name without an ethnicity
    assert train.X.shape[1:] == (16, 16, 3)
    assert train.X.dtype == np.uint8
    ages = [*train.targets["age"], *test.targets["age"]]
    assert {24, 25, 55} <= set(ages)
    assert set(train.targets["ethnicity"]) <= {"White", "Black", "Asian", "Indian"}
    both = [len(part) for part in load_utkface(16, ages=(0, 116), others=True, verify=False)]
    assert sum(both) == 17


def test_utkface_refuses_what_is_not_complete(home):
    (home / "UTKFace").mkdir()
    with pytest.raises(InputError, match="holds no face"):
        load_utkface(verify=False)
    for name, content in faces():
        (home / "UTKFace" / name).write_bytes(content)
    with pytest.raises(InputError, match="counts differ"):
        load_utkface()
    (home / "UTKFace" / NAMES[0]).write_bytes(b"no picture")
    with pytest.raises(InputError, match="cannot be read"):
        load_utkface(verify=False)
    (home / "utkface_64x64.zip").write_bytes(b"no zip")
    with pytest.raises(InputError, match="SHA-256"):
        load_utkface()
    with pytest.raises(InputError, match="whole number from 8 to 200"):
        load_utkface(4)


# The real data


def present(load):
    try:
        return load()
    except DataNotFound as error:
        pytest.skip(str(error))


def test_real_genki():
    train, test = present(load_genki)
    assert (len(train), len(test)) == (1740, 200)
    assert train.X.min() >= 0
    assert train.X.max() <= 1


def test_real_har():
    train, test = present(load_har)
    assert (len(train), len(test)) == (8000, 2299)
    assert train.S["subject"].nunique() == 30
    assert float(np.abs(train.X.to_numpy()).max()) <= 1.0


def test_real_utkface():
    train, test = present(load_utkface)
    assert len(train) + len(test) == 17_645
    men = (train.S["gender"] == "male").sum() + (test.S["gender"] == "male").sum()
    assert men == 9_431
