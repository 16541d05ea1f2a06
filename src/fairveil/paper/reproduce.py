"""`fairveil reproduce`: every experiment by its name, and an index page of all of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import DataNotFound, InputError
from fairveil.paper import adult, gaussian, genki, har, utkface
from fairveil.paper.results import Page, Profile, check_profile, machine


class Run(Protocol):
    """An experiment."""

    def __call__(self, folder: Path, profile: Profile, tell: Callable[[str], None], *, progress: bool = True) -> Page:
        """Compute missing values, draw the figures, and return the page."""
        ...


@dataclass(frozen=True)
class Experiment:
    """One experiment. hours: of `paper` on two cores, extrapolated from the time per step; never run completely."""

    run: Run
    what: str
    hours: float


EXPERIMENTS: dict[str, Experiment] = {
    "gaussian": Experiment(gaussian.page, "learned noise against the known optimum", 0.1),
    "adult-1": Experiment(adult.run_1, "UCI Adult, gender hidden", 0.5),
    "adult-eo": Experiment(adult.run_eo, "UCI Adult, equalized odds of the same releases", 0.1),
    "adult-2": Experiment(adult.run_2, "UCI Adult, gender and relationship hidden", 0.5),
    "genki": Experiment(genki.run, "faces, gender hidden, expression kept", 12),
    "har": Experiment(har.run, "motion sensors, identity hidden, activity kept", 3),
    "utkface": Experiment(utkface.run, "faces, gender hidden, ethnicity and age kept", 600),
}
#: The index page.
INDEX = "index.md"


def chosen(name: str) -> list[str]:
    """The experiments with this name; `all` is every one."""
    if name == "all":
        return list(EXPERIMENTS)
    if name not in EXPERIMENTS:
        raise InputError(f"There is no experiment {name!r}. Use one of {', '.join(EXPERIMENTS)}, or all.")
    return [name]


def reproduce(
    name: str, folder: Path, profile: str = "quick", *, tell: Callable[[str], None] = print, progress: bool = True,
    engine: Engine = HERE,
) -> list[Path]:  # fmt: skip
    """Run experiments and write one page each; values computed by an earlier run are reused.

    With `all`, an experiment whose data is not on this machine is reported and skipped; the others run. engine: on a
    cluster, experiments are tasks; their workers must reach the folder, and the data sets.
    """
    names, size = chosen(name), check_profile(profile)
    folder = folder if size == "quick" else folder / size  # separate pages and figures for each profile
    folder.mkdir(parents=True, exist_ok=True)
    here = engine is HERE
    tasks = [(each, folder.absolute() if not here else folder, size, tell if here else _silent, here and progress)
             for each in _tasks(names)]  # fmt: skip
    runs = [run for found in engine.map(_run, tasks) for run in found]
    absent = {run.name: run.absent for run in runs if run.absent}
    if absent and name != "all":
        raise DataNotFound(absent[name])
    made = {run.name: run.page for run in runs if run.page is not None}
    pages = []
    for run in runs:
        if run.page is not None:
            pages.append(folder / f"{run.name}.md")
        if not here:
            tell(f"{run.name}: " + (f"left out. {run.absent}" if run.absent else f"{run.seconds:.0f} s, {pages[-1]}"))
    if name == "all":
        pages.append(_index(folder, names, made, absent, size))
    return pages


@dataclass(frozen=True)
class _Ran:
    """An experiment that was run: its page, or why it was left out."""

    name: str
    page: Page | None
    seconds: float
    absent: str = ""


def _tasks(names: Sequence[str]) -> list[list[str]]:
    """Experiments that can run at the same time; those on the same releases follow each other."""
    tasks: dict[str, list[str]] = {}
    for each in names:
        tasks.setdefault("adult-1" if each == "adult-eo" else each, []).append(each)
    return list(tasks.values())


def _run(names: Sequence[str], folder: Path, size: Profile, tell: Callable[[str], None], progress: bool) -> list[_Ran]:
    """Run experiments one after another, and write their pages."""
    runs = []
    for each in names:
        experiment = EXPERIMENTS[each]
        length = "" if size == "quick" else f", on a CPU perhaps {experiment.hours:g} hours"
        tell(f"{each}: {experiment.what} ({size}{length})")
        start = time.monotonic()
        try:
            page = experiment.run(folder, size, partial(_tell, tell, each), progress=progress)
        except DataNotFound as error:
            tell(f"  {each}: left out. {error}")
            runs.append(_Ran(each, None, 0.0, str(error)))
            continue
        path = page.write(folder, f"fairveil reproduce {each} --profile {size}")
        runs.append(_Ran(each, page, time.monotonic() - start))
        tell(f"  {each}: {runs[-1].seconds:.0f} s, {path}")
    return runs


def _silent(text: str) -> None:
    """Tell nothing."""


def _tell(tell: Callable[[str], None], name: str, text: str) -> None:
    tell(f"  {name}: {text}")


def _index(folder: Path, names: Sequence[str], made: dict[str, Page], absent: dict[str, str], profile: Profile) -> Path:
    """The summary of each page, with a link; settings, tables and figures are on the pages."""
    # The two pages of case I share one run.
    seconds = sum(page.seconds for name, page in made.items() if name != "adult-eo")
    lines = [
        "# The paper's experiments", "",
        f"Made by `fairveil reproduce all --profile {profile}` in {seconds / 60:.0f} minutes on {machine()}. Each page "
        "has its figures, its tables with the paper's numbers next to ours, and its settings.", "",
    ]  # fmt: skip
    for name in names:
        if name in absent:
            lines += [f"## {name}", "", f"{EXPERIMENTS[name].what}. {absent[name]}", ""]
        else:
            page = made[name]
            lines += [f"## [{page.title}]({name}.md)", "", *(f"- {line}" for line in page.summary), ""]
    path = folder / INDEX
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
