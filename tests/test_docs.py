"""The examples of the documentation run."""

import inspect
import json
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

import fairveil
from fairveil.cli import main

DOCS = Path(__file__).parent.parent / "docs"


def test_the_python_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "python.md", "exec"), {})
    assert (tmp_path / "audit.html").exists()
    assert len(pd.read_parquet("censored.parquet")) == 3000


def test_the_curators_guide_runs(tmp_path, monkeypatch, capsys):
    """Every command of the guide, with a short training on some of the rows."""
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ (fairveil .*)$", (DOCS / "curators.md").read_text(), re.MULTILINE)
    verbs = [shlex.split(command)[1] for command in commands]
    assert verbs == ["example", "inspect", "frontier", "fit", "release", "audit", "card", "fit", "certify", "sign",
                     "sign", "release"]  # fmt: skip
    for command in commands:
        arguments = shlex.split(command)
        if "--require-signature" in arguments:  # the same rows again
            arguments.append("--again")
        if arguments[1] in ("fit", "frontier"):
            arguments = re.sub(r"--budgets? \S+", "", " ".join(arguments)).split()
            arguments += ["--steps", "15", "--rows", "2000", "--seed", "0", "--quiet"]
            arguments += ["--budget", "30"] if arguments[1] == "fit" else ["--budgets", "30"]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert ended.value.code in (0, None) or (arguments[1] == "audit" and ended.value.code == 1), told.err
        if arguments[1] == "example":  # the rest of the guide on every twentieth row
            whole = pd.read_csv("adult.csv")
            assert len(whole) == 48_842
            whole.iloc[::20].to_csv("adult.csv", index=False)
            whole.iloc[1::20].to_csv("fresh.csv", index=False)
    censored = pd.read_csv("censored.csv")
    assert "sex" not in censored.columns
    assert 0 < json.loads(Path("certificate.json").read_text())["bound"] <= 1
    assert "<html" in Path("audit.html").read_text()[:200].lower()


EXAMPLES = sorted((DOCS.parent / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRVEIL_STEPS", "8")
    monkeypatch.setenv("FAIRVEIL_ROWS", "600")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(script))
    printed = capsys.readouterr().out
    assert printed
    assert not re.search(r"\bnan\b", printed), "a step of the example failed silently"
    assert script.stem in (DOCS / "examples.md").read_text()


def test_every_public_name_is_in_the_reference():
    told = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    absent = [name for name in fairveil.__all__ if not re.search(rf"(\.|fv\.){name}\b", told)]
    assert not absent
    without = [name for name in fairveil.__all__ if ">>> " not in (inspect.getdoc(getattr(fairveil, name)) or "")]
    assert not without, "names without an example"


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_a_page_of_the_gallery_shows_its_script(script):
    """Pages are stored with their output: each must hold the code of its script, all of it and nothing else."""
    gallery = runpy.run_path(str(script.parent / "gallery.py"))
    page = (DOCS / "examples" / f"{script.stem}.md").read_text()
    code = [text for kind, text in gallery["cells"](script.read_text()) if kind == "code"]
    assert re.findall(r"```python\n(.*?)\n```", page, re.DOTALL) == code
    for picture in re.findall(r"!\[[^]]*\]\((.*?)\)", page):
        assert (DOCS / "examples" / picture).is_file()
