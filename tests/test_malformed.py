"""A hundred inputs that cannot be used: exit code 2, one message without a value of the data, nothing written."""

import gzip
import json
import os
import random
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from fairveil.cli import main
from releases import fitted, proposed, table, write

#: No message may show it.
VALUE = "quokka"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    frame = table()
    frame.loc[:40, "town"] = VALUE
    path = write(folder, frame)
    fitted(path, folder / "sex.veil")
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "whole.parquet",
                   write_page_checksum=True)  # fmt: skip
    (folder / "schema.json").write_text(json.dumps(proposed(path).to_dict()))
    return folder


def run(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["fairveil", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err


def refused(made, tmp_path, capsys, monkeypatch, source, veil=None):
    before = {path.name for path in tmp_path.iterdir()}
    code, message = run(capsys, monkeypatch, "release", source, "--veil", veil or made / "sex.veil", "-o",
                        tmp_path / "out.csv", "--quiet")  # fmt: skip
    assert code == 2, message
    assert message.startswith("fairveil: ")
    assert len(message) < 4000
    assert VALUE not in message
    assert "Traceback" not in message
    assert {path.name for path in tmp_path.iterdir()} <= {*before, "sex.veil.ledger"}
    return message


def text_of(made) -> str:
    return (made / "people.csv").read_text()


CSV = {
    "ragged: a cell too many": lambda t: t.replace("\n", ",1\n", 20).replace(",1\n", "\n", 1),
    "ragged: a cell too few": lambda t: t.rstrip("\n").rsplit(",", 1)[0] + "\n",
    "ragged: a blank table": lambda t: "a,b\n1\n",
    "no rows": lambda t: t.splitlines()[0] + "\n",
    "no rows, no line end": lambda t: t.splitlines()[0],
    "only line ends": lambda t: "\n\n\n",
    "an open quote": lambda t: t + '"' + VALUE,
    "an open quote in the header": lambda t: '"' + t,
    "duplicate headers": lambda t: t.replace("town", "role", 1),
    "an empty header": lambda t: t.replace("town", "", 1),
    "another header": lambda t: t.replace("town", "city", 1),
    "no header": lambda t: "\n".join(t.splitlines()[1:]),
    "text in a number": lambda t: t.rstrip("\n") + "\nother,x," + VALUE + ",170.0,m,1\n",
    "infinity": lambda t: t.rstrip("\n") + "\nother,x,3,inf,m,1\n",
    "a number with a comma": lambda t: t.rstrip("\n") + '\nother,x,3,"170,5",m,1\n',
    "a number off its grid": lambda t: t.rstrip("\n") + "\nother,x,3.5,170.0,m,1\n",
    "a missing number": lambda t: t.rstrip("\n") + "\nother,x,,170.0,m,1\n",
    "an unknown value of S": lambda t: t.rstrip("\n") + f"\nother,x,3,170.0,{VALUE},1\n",
    "a missing value of S": lambda t: t.rstrip("\n") + "\nother,x,3,170.0,,1\n",
    "semicolons": lambda t: t.replace(",", ";"),
    "tabs": lambda t: t.replace(",", "\t"),
    "a huge cell": lambda t: t.rstrip("\n") + "\n" + "x" * 9_000_000 + ",x,3,170.0,m,1\n",
    "a NUL in a cell": lambda t: t.rstrip("\n") + "\not\x00her,x,3,170.0,m,1\n",
    "ten thousand columns": lambda t: ",".join(f"c{i}" for i in range(10_000)) + "\n" + "1," * 9999 + "1\n",
    "JSON": lambda t: json.dumps([{"role": VALUE}]),
    "HTML": lambda t: f"<table><tr><td>{VALUE}</td></tr></table>",
}


@pytest.mark.parametrize("name", CSV)
def test_csv_files_that_cannot_be_used(made, tmp_path, capsys, monkeypatch, name):
    path = tmp_path / "bad.csv"
    path.write_text(CSV[name](text_of(made)))
    refused(made, tmp_path, capsys, monkeypatch, path)


BYTES = {
    "UTF-16": lambda t: t.encode("utf-16"),
    "UTF-16 without a mark": lambda t: t.encode("utf-16-le"),
    "UTF-32": lambda t: t.encode("utf-32"),
    "Latin-1": lambda t: t.replace("wife", "wîfe").encode("latin-1"),
    "Latin-1 far down": lambda t: (t * 200).encode() + "wîfe,x,3,1.0,m,1\n".encode("latin-1"),
    "gzip": lambda t: gzip.compress(t.encode()),
    "bytes at random": lambda t: random.Random(0).randbytes(5000),
    "nothing": lambda t: b"",
    "NUL bytes": lambda t: b"\x00" * 100,
    "a pickle": lambda t: b"\x80\x04\x95" + t.encode()[:50],
    "a PNG": lambda t: b"\x89PNG\r\n\x1a\n" + t.encode()[:50],
    "only the magic of Parquet": lambda t: b"PAR1",
    "the magic of Parquet twice": lambda t: b"PAR1" + b"\x00" * 40 + b"PAR1",
}


@pytest.mark.parametrize("name", BYTES)
def test_files_that_are_something_else(made, tmp_path, capsys, monkeypatch, name):
    path = tmp_path / "bad.csv"
    path.write_bytes(BYTES[name](text_of(made)))
    refused(made, tmp_path, capsys, monkeypatch, path)


@pytest.mark.parametrize("kind", ["a zip", "a folder", "a FIFO", "nothing there", "a device", "a link to nothing"])
def test_things_that_are_no_files(made, tmp_path, capsys, monkeypatch, kind):
    path = tmp_path / "bad.csv"
    if kind == "a zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("people.csv", text_of(made))
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a device":
        path = Path("/dev/zero")
    elif kind == "a link to nothing":
        path.symlink_to(tmp_path / "gone")
    refused(made, tmp_path, capsys, monkeypatch, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(made, tmp_path, capsys, monkeypatch):
    path = tmp_path / "bad.csv"
    path.write_text(text_of(made))
    path.chmod(0)
    refused(made, tmp_path, capsys, monkeypatch, path)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.99, 0.999])
def test_parquet_files_cut_short(made, tmp_path, capsys, monkeypatch, share):
    content = (made / "whole.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(content[: int(share * len(content))])
    refused(made, tmp_path, capsys, monkeypatch, path)


@pytest.mark.parametrize("seed", range(15))
def test_parquet_files_with_flipped_bits_in_their_pages(made, tmp_path, capsys, monkeypatch, seed):
    """Pages carry checksums; a file of which a page was changed is refused before a row of it is released."""
    content = bytearray((made / "whole.parquet").read_bytes())
    group = pq.ParquetFile(made / "whole.parquet").metadata.row_group(0)
    generator = random.Random(seed)
    column = group.column(generator.randrange(6))
    begin = column.dictionary_page_offset or column.data_page_offset
    end = begin + column.total_compressed_size
    # The last third of the data page is behind its header.
    place = generator.randrange(end - (end - column.data_page_offset) // 3, end)
    content[place] ^= 1 << generator.randrange(8)
    path = tmp_path / "bad.parquet"
    path.write_bytes(bytes(content))
    refused(made, tmp_path, capsys, monkeypatch, path)


@pytest.mark.parametrize("kind", ["lists", "dates", "no columns", "no rows", "twice"])
def test_parquet_tables_that_cannot_be_used(made, tmp_path, capsys, monkeypatch, kind):
    frame = table(300)
    whole = pa.Table.from_pandas(frame, preserve_index=False)
    changed = {
        "lists": whole.set_column(0, "role", pa.array([[VALUE]] * 300)),
        "dates": whole.set_column(2, "skill", pa.array(pd.date_range("2000-01-01", periods=300))),
        "no columns": whole.select([]),
        "no rows": whole.slice(0, 0),
        "twice": whole.append_column("role", whole["role"]),
    }[kind]
    pq.write_table(changed, tmp_path / "bad.parquet")
    refused(made, tmp_path, capsys, monkeypatch, tmp_path / "bad.parquet")


@pytest.mark.parametrize("seed", range(15))
def test_veils_that_were_changed(made, tmp_path, capsys, monkeypatch, seed):
    content = bytearray((made / "sex.veil").read_bytes())
    generator = random.Random(seed)
    if seed < 5:
        content = content[: generator.randrange(len(content))]
    else:
        content[generator.randrange(len(content) * 9 // 10)] ^= 1 << generator.randrange(8)
    veil = tmp_path / "bad.veil"
    veil.write_bytes(bytes(content))
    if bytes(content) == (made / "sex.veil").read_bytes():
        pytest.skip("nothing was changed")
    refused(made, tmp_path, capsys, monkeypatch, made / "people.csv", veil)


SCHEMAS = {
    "no YAML": lambda s: "columns: [",
    "no mapping": lambda s: "- 1\n- 2\n",
    "no columns": lambda s: "{}",
    "columns of another kind": lambda s: "columns: 3",
    "a column that is a text": lambda s: "columns: [role]",
    "an unknown field": lambda s: _edited(s, 0, colour="red"),
    "an unknown role": lambda s: _edited(s, 0, role="hide"),
    "no role": lambda s: _edited(s, 0, role=None),
    "an unknown kind": lambda s: _edited(s, 0, kind="text"),
    "no categories": lambda s: _edited(s, 0, categories=[]),
    "a category twice": lambda s: _edited(s, 0, categories=["wife", "wife"]),
    "an upper end below the lower": lambda s: _edited(s, 3, lower=200.0, upper=100.0),
    "a scale of nought": lambda s: _edited(s, 3, scale=0.0),
    "a column too few": lambda s: yaml.safe_dump({"columns": s["columns"][1:]}),
    "a column too many": lambda s: yaml.safe_dump({"columns": [*s["columns"], {**s["columns"][0], "name": "new"}]}),
    "a column twice": lambda s: yaml.safe_dump({"columns": [*s["columns"], s["columns"][0]]}),
    "code": lambda s: "!!python/object/apply:os.system ['touch pwned']",
    "everything dropped": lambda s: yaml.safe_dump({"columns": [{**c, "role": "drop"} for c in s["columns"]]}),
    "too deep": lambda s: "[" * 5000,
}


def _edited(schema, index, **changes):
    columns = [dict(column) for column in schema["columns"]]
    columns[index] |= changes
    return yaml.safe_dump({"columns": columns})


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_that_cannot_be_used(made, tmp_path, capsys, monkeypatch, name):
    plain = json.loads((made / "schema.json").read_text())
    path = tmp_path / "schema.yaml"
    path.write_text(SCHEMAS[name](plain))
    monkeypatch.chdir(tmp_path)
    code, message = run(capsys, monkeypatch, "fit", made / "people.csv", "--schema", path, "-o", tmp_path / "x.veil",
                        "--steps", "2", "--quiet")  # fmt: skip
    assert code == 2, message
    assert message.startswith("fairveil: ")
    assert VALUE not in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["schema.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["release", "people.csv", "--veil", "sex.veil", "-o", "out.xlsx"], "must end in"),
        (["release", "people.csv", "--veil", "sex.veil", "-o", "no/such/out.csv"], "no folder"),
        (["release", "people.csv", "--veil", "sex.veil", "-o", "people.csv"], "would replace the input"),
        (["release", "people.csv", "--veil", "none.veil", "-o", "out.csv"], "no veil"),
        (["fit", "people.csv", "-o", "x.veil"], "Nothing to hide"),
        (["fit", "people.csv", "-s", "age", "-o", "x.veil"], "no column 'age'"),
        (["fit", "people.csv", "-s", "sex", "-o", "x.veil", "--budget", "-1"], "budget"),
        (["fit", "people.csv", "-s", "sex", "-o", "x.zip"], "must end in"),
        (["frontier", "people.csv", "-s", "sex", "-o", "f", "--budgets", "one"], "--budgets"),
        (["frontier", "people.csv", "-s", "sex", "-o", "people.csv"], "is a file"),
        (["frontier", "people.csv", "-s", "sex", "--target", "age", "-o", "f"], "'age'"),
        (["inspect", "people.csv", "-s", "age"], "no column 'age'"),
        (["inspect", "people.csv", "-s", "sex", "-o", "sex.veil"], "already exists"),
        (["audit", "people.csv", "--original", "people.csv", "-s", "sex"], "is unknown"),
        (["audit", "people.csv", "--original", "people.csv"], "--sensitive"),
        (["certify", "people.csv", "--veil", "sex.veil"], "matrix"),
        (["card", "people.csv"], "no card"),
        (["--config", "none.yaml", "inspect", "people.csv"], "There is no configuration"),
    ],
)
def test_wrong_usage(made, tmp_path, capsys, monkeypatch, arguments, message):
    for name in ("people.csv", "sex.veil"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    code, told = run(capsys, monkeypatch, *arguments)
    assert code == 2
    assert message in told
    assert sorted(p.name for p in tmp_path.iterdir()) == ["people.csv", "sex.veil"]
