"""Bad files ended with exit code 3, an internal error, instead of 2 and a message."""

import json
import zipfile

import pytest
import yaml

from fairveil.veil.archive import read_archive, write_archive
from fairveil.workflows import Options, card_path, release_file
from releases import table

QUIET = Options(show_progress=False, workers=1)
DEEP = "[" * 100_000


def refused(run, *arguments):
    code, said = run(*arguments)
    assert code == 2, said
    assert said.startswith(("fairveil: ", "Usage", "Warning")), said
    assert "internal error" not in said
    return said


def veil(place, manifest):
    """A veil with this text for a manifest."""
    from fairveil.veil.archive import _digest

    with zipfile.ZipFile(place / "sex.veil") as archive:
        weights = archive.read("weights.safetensors")
    with zipfile.ZipFile(place / "bad.veil", "w") as archive:
        archive.writestr("manifest.json", manifest)
        archive.writestr("weights.safetensors", weights)
        archive.writestr("sha256", _digest(manifest.encode(), weights))
    return place / "bad.veil"


@pytest.mark.parametrize(
    "manifest",
    [DEEP, '{"format": ' + DEEP, "[]", "3", "null", "{}", '{"format": "fairveil-veil-2"}', "NaN", '{"a": Infinity}'],
)
def test_odd_manifests(place, run, manifest):
    refused(run, "release", place / "people.csv", "--veil", veil(place, manifest), "-o", place / "out.csv")


def test_deep_parameters(place, run):
    manifest, weights = read_archive(place / "sex.veil")
    nested = []
    for _ in range(500):
        nested = [nested]
    manifest["parameters"]["training"] = nested
    write_archive(place / "bad.veil", manifest, weights)
    refused(run, "release", place / "people.csv", "--veil", place / "bad.veil", "-o", place / "out.csv")


def test_an_encrypted_zip(place, run):
    content = bytearray((place / "sex.veil").read_bytes())
    for signature, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        start = 0
        while (found := content.find(signature, start)) >= 0:
            content[found + offset] |= 1
            start = found + 4
    (place / "bad.veil").write_bytes(content)
    assert "encrypted" in refused(
        run, "release", place / "people.csv", "--veil", place / "bad.veil", "-o", place / "o.csv"
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        DEEP,
        "[]",
        "{}",
        '{"format": "fairveil-card-4"}',
        '{"format": "fairveil-card-4", "release": 3}',
        "\xff\xfe",
    ],
)
def test_bad_cards(place, run, content):
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    card_path(place / "out.csv").write_bytes(content.encode("latin-1"))
    refused(run, "card", place / "out.csv")


@pytest.mark.parametrize(
    "content", ["", "{", DEEP, "[]", "{}", '{"format": "fairveil-audit-2"}', '{"subject": 3}', "\xff\xfe"]
)
@pytest.mark.parametrize("option", ["--audit", "--certificate"])
def test_bad_audits_and_certificates(place, run, option, content):
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    (place / "bad.json").write_bytes(content.encode("latin-1"))
    refused(run, "card", place / "out.csv", option, place / "bad.json")
    refused(run, "card", place / "out.csv", option, place / "nothing.json")
    refused(run, "card", place / "out.csv", option, place)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "fit: [1]",
        "fit: {budget: {a: 1}}",
        "fit: {surprise: 1}",
        "a: &a [1]\nb: *a",
        "? [1]\n: 2",
        "[" * 5000,
        "\xff\xfe",
        "fit: {budget: 1, budget: 2}",
    ],
)
def test_bad_configurations(place, run, content):
    (place / "bad.yaml").write_bytes(content.encode("latin-1"))
    code, said = run("--config", place / "bad.yaml", "fit", place / "people.csv", "-o", place / "x.veil")
    assert code == 2, said
    assert "internal error" not in said


@pytest.mark.parametrize("header", ["a\u2028b", "a\x85b", "a\x0bb", "a\x1cb"])
def test_line_separators_in_headers(tmp_path, run, header):
    (tmp_path / "odd.csv").write_text(f"{header},sex\n" + "1,f\n2,m\n" * 50, encoding="utf-8")
    assert "control characters" in refused(run, "inspect", tmp_path / "odd.csv", "-s", "sex")


def test_a_good_file_of_each_kind(place, run):
    """The control."""
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    assert run("card", place / "out.csv")[0] == 0
    (place / "good.yaml").write_text(json.dumps({"inspect": {"sensitive": ["sex"]}}))
    assert run("--config", place / "good.yaml", "inspect", place / "people.csv")[0] == 0
    assert len(table()) == 900


@pytest.mark.parametrize("part", [("veil", "budget"), ("distortion", "total"), ("release", "rows")])
def test_numbers_beyond_all_bounds_on_a_card(place, run, part):
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    card = json.loads(card_path(place / "out.csv").read_text())
    card[part[0]][part[1]] = 10**400
    card_path(place / "out.csv").write_text(json.dumps(card))
    refused(run, "card", place / "out.csv")


@pytest.mark.parametrize(
    ("field", "value"),
    [("clipped", -1), ("clipped", 1e299), ("clipped", "x"), ("grid", 1e299), ("scale", 1e-299), ("upper", 1e200)],
)
def test_numbers_of_a_schema_that_no_column_has(place, run, field, value):
    schema = place / "schema.yaml"
    assert run("inspect", place / "people.csv", "-s", "sex", "-o", schema)[0] == 0
    values = yaml.safe_load(schema.read_text())
    next(column for column in values["columns"] if column["kind"] != "categorical")[field] = value
    schema.write_text(yaml.safe_dump(values))
    said = refused(run, "fit", place / "people.csv", "--schema", schema, "--steps", 1, "-o", place / "new.veil")
    assert "Column 'skill' of the schema" in said
