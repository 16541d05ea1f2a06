"""The other verbs, and all verbs together. Imports are deferred until a verb runs, so that help is fast."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairveil.cli import files, results
from fairveil.cli.app import Address, Engine, Quiet, app, main
from fairveil.paper import NAMES

__all__ = ["app", "files", "main", "results"]


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the censored table, the plot and the numbers.")] = Path(
        "results"
    ),
    budgets: Annotated[str, typer.Option(help="Budgets to train, separated by commas.")] = "0.5,0.8,1.2,1.8",
    steps: Annotated[int, typer.Option(min=1, help="Encoder steps; fewer are faster and leak more.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed for training and for the demo's draws.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Train a frontier on UCI Adult (S = sex), release a censored table, and attack it with fresh models.

    Example: `fairveil demo --output results --budgets 0.5,1,2`
    """
    from fairveil.workflows.demo import run_demo

    run_demo(output, files.parse_budgets(budgets), steps=steps, seed=seed, progress=not quiet)


@app.command()
def example(
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV file to write.")] = Path("adult.csv"),
) -> None:
    """Write UCI Adult (48,842 people, with sex and salary) as a CSV file, to try the other verbs on.

    Example: `fairveil example -o adult.csv`
    """
    from fairveil.workflows.demo import write_example

    rows = write_example(output)
    typer.echo(f"Wrote {output}: {rows:,} rows.")


@app.command()
def studio(
    file: Annotated[Path | None, typer.Argument(help="A CSV or Parquet file, or a folder with some.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 finds a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open a page in the browser: from a table to a release and its report. Nothing leaves this machine.

    Example: `fairveil studio adult.csv`
    """
    from fairveil.studio import serve

    serve(file, port=port, open_browser=not no_browser)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"Which experiment: {', '.join(NAMES)}, or all.")],
    output: Annotated[Path, typer.Option(help="Folder for the figures and tables.")] = Path("results/paper"),
    profile: Annotated[str, typer.Option(help="quick (smaller) or paper (the paper's sizes: hours).")] = "quick",
    engine: Engine = "local",
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper; draw its figures and print its tables next to the paper's numbers.

    Results of an interrupted run are reused.

    Example: `fairveil reproduce genki --profile quick`
    """
    from fairveil.paper.reproduce import reproduce as run_experiments
    from fairveil.workflows.engines import started

    tell = (lambda text: None) if quiet else partial(typer.echo, err=True)
    with started(engine, address) as chosen:
        pages = run_experiments(name, output, profile, tell=tell, progress=not quiet, engine=chosen)
    for page in pages:
        typer.echo(page.read_text(encoding="utf-8"))
