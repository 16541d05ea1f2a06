"""A CSV header with line breaks escaped its comment in the schema and turned other columns to `pass`."""

import pytest

import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil.data.columns import Column
from fairveil.workflows import inspect_file, open_table, read_schema
from fairveil.workflows.inspect import Found, Inspection
from releases import table, write

PAYLOAD = "x\n- {name: role, role: pass, kind: categorical}\n#"
CONTROLS = [PAYLOAD, "a\x1b[2Jb", "a\x00b", "a\u2028b", "a\u202eb", "a\x9bb", "a\u200bb"]


@pytest.mark.parametrize("name", CONTROLS)
def test_names_with_control_characters_are_refused(tmp_path, name):
    frame = table().rename(columns={"skill": name})
    frame.to_csv(tmp_path / "odd.csv", index=False)
    with pytest.raises(InputError, match=r"control characters|NUL bytes") as raised:
        open_table(tmp_path / "odd.csv")
    assert "\x1b" not in str(raised.value)
    if "\x00" not in name:
        frame.to_parquet(tmp_path / "odd.parquet")
        with pytest.raises(InputError, match="control characters"):
            open_table(tmp_path / "odd.parquet")
    with pytest.raises(InputError, match="control characters"):
        fv.Schema((Column(name, "categorical", categories=("a",)),))


def test_no_name_escapes_its_comment(tmp_path):
    """Even if such a name were to get that far."""
    found = Found(Column(PAYLOAD, "categorical", None), 3, 0.0, None, ("no role yet. Why?",))
    text = Inspection("f\n- evil: 1", 10, (found,), (), None).to_yaml()
    columns = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(columns) == 1


@pytest.mark.parametrize(
    "name", ["#town", "a: b", "- x", "[town]", "{town}", "'town", '"town"', "&a", "*a", "yes", "1"]
)
def test_odd_names_come_back_as_they_were(tmp_path, name):
    """The control."""
    path = write(tmp_path, table().rename(columns={"town": name}))
    (tmp_path / "schema.yaml").write_text(inspect_file(open_table(path), ["sex"]).to_yaml())
    assert name in read_schema(tmp_path / "schema.yaml").names


@pytest.mark.parametrize(
    "text",
    [
        "columns:\n- {name: a, kind: categorical, role: drop, role: pass}\n",
        "columns: []\ncolumns:\n- {name: a, kind: categorical, role: pass}\n",
        "columns:\n- {name: a, kind: categorical, role: drop}\n- {name: a, kind: categorical, role: pass}\n",
        "columns: &a\n- {name: a, kind: categorical, role: drop}\nmore: *a\n",
        "columns:\n- !!python/object/apply:os.system ['true']\n",
        "columns:\n- {name: a, kind: categorical, role: drop, surprise: 1}\n",
    ],
)
def test_schemas_that_say_a_thing_twice_or_hide_it_are_refused(tmp_path, text):
    (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(InputError):
        read_schema(tmp_path / "schema.yaml")


def test_fit_says_what_is_released_as_it_is(tmp_path, capsys, monkeypatch):
    from fairveil.cli import main

    path = write(tmp_path, table())
    schema = inspect_file(open_table(path), ["sex"]).schema().edit("town", role="pass")
    schema.save(tmp_path / "schema.json")
    options = {"--schema": tmp_path / "schema.json", "--budget": 10**6, "--steps": 3, "--seed": 0,
               "--architecture": "feedforward", "-o": tmp_path / "sex.veil"}  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr("sys.argv", ["fairveil", "fit", str(path), *words, "--quiet"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "Released unchanged, by the schema: 'town' (pass)" in capsys.readouterr().out
