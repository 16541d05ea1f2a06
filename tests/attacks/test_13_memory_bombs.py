"""Files of a few kilobytes took gigabytes: a veil 13 GB, a zip 8, a Parquet file 8 (with --memory 64), a schema 2."""

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fairveil.veil.archive import _digest, read_archive, write_archive
from releases import table

CHILD = """
import resource, sys, warnings
from pathlib import Path
import fairveil as fv
from fairveil.data import images
from fairveil._utils.errors import InputError, VeilFileError
from fairveil.workflows import open_table, inspect_file, read_schema, release_file, Options
import torch
warnings.simplefilter("ignore")
kind, path, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
fv.load(place / "sex.veil")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if kind == "veil":
        fv.load(path)
    elif kind == "schema":
        read_schema(path)
    elif kind == "images":
        images.read_folder(path)
    else:
        inspect_file(open_table(path))
        print("read")
except (InputError, VeilFileError) as error:
    print("refused:", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def megabytes(kind, path, place):
    """What it takes to look at a file, and what is said of it."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, kind, str(path), str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *said, peak = done.stdout.strip().splitlines()
    return int(peak), " ".join(said)


def test_a_network_that_is_described_and_not_there(place):
    manifest, weights = read_archive(place / "sex.veil")
    manifest["architecture"]["hidden"] = [50_000, 50_000]
    write_archive(place / "bomb.veil", manifest, weights)
    peak, said = megabytes("veil", place / "bomb.veil", place)
    assert "refused" in said
    assert peak < 200


def test_constants_that_grow_with_the_square_of_the_table(place):
    """Many numbers with many bins: what a head keeps for them takes their product."""
    manifest, weights = read_archive(place / "sex.veil")
    [height] = [c for c in manifest["schema"]["columns"] if c["name"] == "height"]
    starts = [round(height["lower"] + 0.1 * i, 1) for i in range(200)]
    manifest["schema"]["columns"] += [{**height, "name": f"n{i}", "starts": starts, "upper": 300.0} for i in range(600)]
    manifest["schema"].pop("dependencies", None)
    write_archive(place / "bomb.veil", manifest, weights)
    peak, said = megabytes("veil", place / "bomb.veil", place)
    assert "refused" in said
    assert peak < 500


@pytest.mark.parametrize("part", ["weights.safetensors", "manifest.json"])
def test_parts_that_are_compressed(place, part):
    bomb = place / "bomb.veil"
    with zipfile.ZipFile(place / "sex.veil") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[part] = parts[part] + b" " * 2**28 if part == "manifest.json" else bytes(2**28)
    parts["sha256"] = _digest(parts["manifest.json"], parts["weights.safetensors"]).encode()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    del parts
    assert bomb.stat().st_size < 4e6
    peak, said = megabytes("veil", bomb, place)
    assert "compressed or encrypted" in said
    assert peak < 100


def test_a_text_that_every_row_of_a_parquet_file_repeats(tmp_path, place):
    path = tmp_path / "bomb.parquet"
    text = pa.array(["x" * 120_000])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(60_000, dtype=np.int32)), text)
    pq.write_table(pa.table({"a": column, "b": np.arange(60_000)}), path, compression="zstd")
    assert path.stat().st_size < 300_000
    peak, said = megabytes("table", path, place)
    assert "cells of more than" in said
    assert peak < 300


def test_many_cells_that_are_each_within_the_limit(tmp_path, place):
    path = tmp_path / "bomb.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(60_000, dtype=np.int32)), pa.array(["x" * 60_000]))
    pq.write_table(pa.table({"a": column}), path, compression="zstd")
    peak, said = megabytes("table", path, place)
    assert "too many long ones" in said
    assert peak < 600


def test_texts_as_differences(tmp_path, place):
    path = tmp_path / "bomb.parquet"
    texts = pa.array([("x" * 2000) + str(i) for i in range(20_000)])
    pq.write_table(pa.table({"a": texts}), path, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    peak, said = megabytes("table", path, place)
    assert "DELTA_BYTE_ARRAY" in said
    assert peak < 100


def test_an_ordinary_parquet_file(tmp_path, place):
    """The control: texts repeat, and that is all right."""
    path = tmp_path / "fine.parquet"
    table(3000).to_parquet(path)
    assert megabytes("table", path, place)[1] == "read"


def test_a_schema_of_aliases(tmp_path, place):
    lines = ["columns:", "- name: a", "  kind: categorical", "  categories:", "  - &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  - &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(8)]
    (tmp_path / "schema.yaml").write_text("\n".join(lines))
    assert (tmp_path / "schema.yaml").stat().st_size < 1000
    peak, said = megabytes("schema", tmp_path / "schema.yaml", place)
    assert "anchors are not allowed" in said
    assert peak < 50


def test_an_image_of_many_pixels(tmp_path, place):
    folder = tmp_path / "faces"
    folder.mkdir()
    buffer = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(buffer, "PNG", compress_level=9)
    (folder / "1.png").write_bytes(buffer.getvalue())
    assert len(buffer.getvalue()) < 300_000
    peak, said = megabytes("images", folder, place)
    assert "pixels" in said
    assert peak < 100


def test_images_of_other_sizes_are_not_decoded(tmp_path, place):
    """One small image and many large ones: the first says what all must be."""
    folder = tmp_path / "faces"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "0.png")
    buffer = io.BytesIO()
    Image.new("L", (8000, 8000)).save(buffer, "PNG", compress_level=9)
    for i in range(1, 5):
        (folder / f"{i}.png").write_bytes(buffer.getvalue())
    peak, said = megabytes("images", folder, place)
    assert "differ in size" in said
    assert peak < 100


def test_the_sizes_of_a_footer_are_looked_at(tmp_path):
    """A column that claims far more than it takes on disk is refused by its footer."""
    from types import SimpleNamespace

    from fairveil._utils.errors import InputError
    from fairveil.workflows.reading import _refuse_bombs

    def footer(uncompressed):
        chunk = SimpleNamespace(
            path_in_schema="a", total_uncompressed_size=uncompressed, total_compressed_size=1000, encodings=("PLAIN",)
        )
        group = SimpleNamespace(column=lambda index: chunk)
        return SimpleNamespace(num_row_groups=1, num_columns=1, row_group=lambda index: group)

    _refuse_bombs("fine", footer(10**6), ["a"])
    with pytest.raises(InputError, match="far more than its size"):
        _refuse_bombs("bomb", footer(10**10), ["a"])


def test_deep_json_is_refused(tmp_path, place):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    assert "refused" in megabytes("schema", tmp_path / "deep.json", place)[1]
    assert json.loads("[]") == []


@pytest.mark.parametrize("text", ["columns: [" + "[]," * 400_000 + "]", "columns:\n" + "- {}\n" * 300_000])
def test_schemas_of_many_empty_parts(tmp_path, place, text):
    (tmp_path / "schema.yaml").write_text(text)
    peak, said = megabytes("schema", tmp_path / "schema.yaml", place)
    assert "too many parts" in said
    assert peak < 100


def test_columns_of_many_categories_that_determine_each_other(tmp_path, place):
    categories = [f"c{i}" for i in range(12_000)]
    columns = [{"name": name, "kind": "categorical", "categories": categories} for name in "ab"]
    rule = {"column": "b", "by": "a", "values": categories}
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns, "dependencies": [rule]}))
    peak, said = megabytes("schema", tmp_path / "schema.json", place)
    assert "lists more than" in said
    assert peak < 300
