"""Veils that somebody crafted, with a SHA-256 to match, released rows as they were under "hides sex"."""

import json
import re
from dataclasses import replace

import pytest

import fairveil as fv
from fairveil import workflows
from fairveil._utils.errors import InputError, VeilFileError
from fairveil.veil.archive import read_archive, write_archive
from fairveil.veil.signing import check_signature, make_key, sign_file, signature_path
from fairveil.workflows import Options, card_path, release_file
from releases import proposed, table, write

QUIET = Options(show_progress=False, workers=1)


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A transport veil, whose mover can be told to leave every row as it is."""
    folder = tmp_path_factory.mktemp("moved")
    path = write(folder, table())
    training = fv.Training(steps=20)
    encoder = fv.FairEncoder(
        1e6,
        architecture="transport",
        sees_sensitive=True,
        schema=proposed(path),
        handle_unknown="most_frequent",
        training=training,
        random_state=0,
        verbose=False,
    )
    encoder.fit(table()).save(folder / "sex.veil")
    return folder


def forged(veil, target, manifest=None, weights=None):
    """The same veil, changed, with a checksum that fits."""
    values, tensors = read_archive(veil)
    if manifest is not None:
        manifest(values)
    if weights is not None:
        weights(tensors)
    write_archive(target, values, tensors)
    return target


def test_a_veil_that_was_only_packed_anew_works(place):
    """The control."""
    forged(place / "sex.veil", place / "same.veil")
    release_file(place / "people.csv", place / "same.veil", place / "out.csv", QUIET)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(place, value):
    def poison(tensors):
        next(iter(tensors.values())).view(-1)[0] = value

    with pytest.raises(VeilFileError, match="not finite"):
        fv.load(forged(place / "sex.veil", place / "bad.veil", weights=poison))


@pytest.mark.parametrize("how", ["all stay", "closed gates"])
def test_a_veil_that_moves_nothing_is_found_out(moved, tmp_path, how):
    def still(tensors):
        if how == "all stay":
            tensors["mover.stays"].fill_(1.0)
        else:
            last = max(name for name in tensors if name.startswith("gate.") and "bias" in name)
            tensors[last].fill_(-1e4)[..., 0] = 1e4  # the first choice is to stay
            for name in tensors:
                if name.startswith("gate.") and name != last:
                    tensors[name].zero_()

    veil = forged(moved / "sex.veil", tmp_path / "sex.veil", weights=still)
    with pytest.raises(InputError, match=r"% of its rows are changed, but the veil states|but the veil states about"):
        release_file(moved / "people.csv", veil, tmp_path / "out.csv", QUIET)
    assert not (tmp_path / "out.csv").exists()


def test_the_same_veil_unchanged_keeps_its_word(moved, tmp_path):
    """The control."""
    (tmp_path / "sex.veil").write_bytes((moved / "sex.veil").read_bytes())
    release_file(moved / "people.csv", tmp_path / "sex.veil", tmp_path / "out.csv", QUIET)


@pytest.mark.parametrize("role", ["pass", "keep"])
def test_a_veil_that_releases_the_sensitive_column(place, role):
    def tell(manifest):
        for column in manifest["schema"]["columns"]:
            if column["name"] == "sex":
                column["role"] = role
                if role == "keep":
                    column["categories"] = ["f", "m"]

    with pytest.raises(VeilFileError, match="releases a sensitive column"):
        fv.load(forged(place / "sex.veil", place / "bad.veil", tell))


PARAMETERS = {
    "random_state": 7,
    "verbose": True,
    "training": {"type": "Training", "steps": "many"},
    "surprise": 1,
    "budget": "1.0](javascript:alert(1)) **certified**",
    "sees_sensitive": "no",
    "confidence": 2.0,
    "architecture": "os.system",
    "handle_unknown": ["error"],
    "distortion": "none at all",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_are_unknown_or_of_another_type(place, name):
    def change(manifest):
        manifest["parameters"][name] = PARAMETERS[name]

    with pytest.raises(VeilFileError, match="manifest that cannot be read"):
        fv.load(forged(place / "sex.veil", place / "bad.veil", change))


MANIFESTS = {
    "another S": lambda m: m["sensitive"]["joint"].pop(),
    "classes that are not there": lambda m: m["sensitive"]["joint"].append([99]),
    "a wider network": lambda m: m["architecture"].update(hidden=[60_000, 60_000]),
    "a network without an end": lambda m: m["architecture"].update(hidden=[10**9]),
    "an encoder that does not see S": lambda m: m.update(sees_sensitive=False),
    "a lie about S": lambda m: m["parameters"].update(sees_sensitive=False),
    "text for a number": lambda m: m["distortion"].update(mean="0.1"),
    "no bound": lambda m: m.pop("distortion"),
    "more changes than rows": lambda m: m["distortion"].update(changed=1e308),
    "a list for a mapping": lambda m: m.update(schema=[]),
    "nested categories": lambda m: m["schema"]["columns"][0].update(categories=[[["a"] * 9] * 9] * 9),
    "an endless range": lambda m: m["schema"]["columns"][2].update(upper=1e308 * 10),
    "an unknown rule": lambda m: m.update(handle_unknown="whatever"),
    "a format of the past": lambda m: m.update(format="fairveil-veil-1"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_that_contradict_themselves(place, name):
    try:
        veil = forged(place / "sex.veil", place / "bad.veil", MANIFESTS[name])
    except ValueError:
        return  # not even JSON
    with pytest.raises((VeilFileError, InputError)):
        fv.load(veil)


def test_nothing_from_a_veil_is_markup_on_a_card(place):
    """A budget is a number, a name is escaped."""
    release_file(place / "people.csv", place / "sex.veil", place / "out.csv", QUIET)
    path = card_path(place / "out.csv")
    card = json.loads(path.read_text())
    card["veil"]["budget"] = "1](javascript:alert(1))"
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match="not a card"):
        workflows.read_card(path)
    card["veil"]["budget"] = 1.0
    card["veil"]["hides"] = ["sex](http://evil) <script>\x1b[31m"]
    text = workflows.card_text(card)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert re.search(r"(?<!\\)\]\(", text) is None


@pytest.fixture
def signed(place):
    pytest.importorskip("cryptography")
    public = make_key(place / "curator.key")
    sign_file(place / "sex.veil", place / "curator.key")
    return place, public


def test_a_signature_tells_who_made_a_veil(signed):
    place, public = signed
    check_signature(place / "sex.veil", public)
    assert (place / "curator.key").stat().st_mode & 0o077 == 0


def test_a_forged_veil_has_no_signature_that_fits(signed):
    place, public = signed
    bad = forged(place / "sex.veil", place / "bad.veil", lambda m: m["parameters"].update(budget=5.0))
    with pytest.raises(InputError, match="There is no signature"):
        check_signature(bad, public)
    signature_path(bad).write_bytes(signature_path(place / "sex.veil").read_bytes())
    with pytest.raises(InputError, match="changed after it was signed, or somebody else signed it"):
        check_signature(bad, public)
    make_key(place / "mallory.key")
    sign_file(bad, place / "mallory.key")
    with pytest.raises(InputError, match="somebody else signed it"):
        check_signature(bad, public)


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, '{"format": "fairveil-signature-1", "signature": "é"}'])
def test_damaged_signatures_and_keys(signed, content):
    place, public = signed
    signature_path(place / "sex.veil").write_text(content)
    with pytest.raises(InputError):
        check_signature(place / "sex.veil", public)
    (place / "odd.pub").write_text(content)
    with pytest.raises(InputError, match="not a public Ed25519 key"):
        check_signature(place / "sex.veil", place / "odd.pub")
    with pytest.raises(InputError, match="already exists"):
        make_key(place / "curator.key")


def test_release_uses_only_what_was_signed_if_asked(signed, monkeypatch, capsys):
    from fairveil.cli import main

    place, public = signed
    bad = forged(place / "sex.veil", place / "bad.veil", lambda m: m["parameters"].update(budget=5.0))
    for veil, code in ((bad, 2), (place / "sex.veil", 0)):
        words = ["release", place / "people.csv", "--veil", veil, "--quiet", "-o", place / "out.csv"]
        monkeypatch.setattr("sys.argv", ["fairveil", *map(str, words), "--require-signature", str(public)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        assert (place / "out.csv").exists() == (code == 0)


def test_a_distortion_of_the_callers_own_is_not_taken_for_another(place):
    """A function is code, and not kept: the file says so, and nothing is compared with a budget in other units."""
    from helpers import QUICK

    schema = proposed(place / "people.csv")
    encoder = fv.FairEncoder(
        1e6,
        architecture="feedforward",
        sees_sensitive=True,
        schema=schema,
        handle_unknown="most_frequent",
        training=QUICK,
        random_state=0,
        verbose=False,
        unmet="warn",  # nothing limits such a function: few rows verify nothing
        distortion=lambda released, original: (released - original).abs().sum(-1),
    )
    with pytest.warns(fv.BudgetWarning):
        encoder.fit(table())
    encoder.save(place / "own.veil")
    assert fv.load(place / "own.veil").distortion == "custom"
    card = release_file(place / "people.csv", place / "own.veil", place / "out.csv", replace(QUIET, unverified=True))
    assert card["distortion"] == {"total": None, "rows_measured": 0}
