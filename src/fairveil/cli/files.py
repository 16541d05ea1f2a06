"""Verbs that write files: inspect, fit, frontier, release."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairveil import workflows
from fairveil._utils.atomic import sha256_of, write_atomic
from fairveil._utils.errors import InputError
from fairveil.cli.app import Address, Engine, Json, Quiet, app, printable, show_json
from fairveil.cli.options import (
    Architecture,
    Blind,
    Cells,
    Fairness,
    HeldOut,
    Known,
    Labels,
    Loss,
    Person,
    Resume,
    Rows,
    SchemaFile,
    Seed,
    Sensitive,
    Signature,
    Steps,
    Targets,
    TargetWeight,
)
from fairveil.veil.signing import check_signature

if TYPE_CHECKING:
    import pandas as pd

console = Console(width=None if Console().is_terminal else 120)


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a folder or pattern of them.")],
    sensitive: Sensitive = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a schema to edit (YAML).")] = None,
    as_json: Json = False,
) -> None:
    """Inspect a table: propose a role for every column, and flag identifiers, names and near-copies of S.

    Example: `fairveil inspect adult.csv --sensitive sex -o schema.yaml`
    """
    if output is not None and output.exists():
        raise InputError(f"{output} already exists, perhaps with roles that you edited. Name another file.")
    found = workflows.inspect_file(workflows.open_tables(file), split_names(sensitive, file))
    if output is not None:
        write_atomic(output, found.to_yaml().encode())
    if as_json:
        show_json(found.to_dict())
        return
    console.print(_inspected(found))
    for rule in found.dependencies:
        typer.echo(f"{rule.by!r} determines {rule.column!r}: releases respect this.")
    for name in found.undecided:
        typer.echo(f"{name!r} has no role yet.")
    if output is not None:
        typer.echo(f"Wrote {output}. Edit the roles, then run fairveil fit {file} --schema {output}.")


@app.command()
def fit(
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file, a folder or pattern of them, or images.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The veil to write, such as sex.veil.")],
    budget: Annotated[
        float | None,
        typer.Option(help="D, the bound on the mean distortion of a row; 1 by default, none with --certified."),
    ] = None,
    certified: Annotated[
        float | None,
        typer.Option(
            help="Ask for a certificate: a bound on ΔDemP of any predictor, such as 0.05. Rows are set aside "
            "for it; the release then consists of a few records."
        ),
    ] = None,
    sensitive: Sensitive = None,
    schema: SchemaFile = None,
    labels: Labels = None,
    loss: Loss = "log",
    architecture: Architecture = "auto",
    cells: Cells = None,
    blind: Blind = False,
    target: Targets = None,
    target_weight: TargetWeight = None,
    fairness: Fairness = "demographic_parity",
    steps: Steps = None,
    rows: Rows = None,
    held_out: HeldOut = 0.3,
    seed: Seed = None,
    resume: Resume = False,
    engine: Engine = "local",
    address: Address = None,
    processes: Annotated[
        int, typer.Option(min=1, help="With --engine ray: how many processes share each step of training.")
    ] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a veil: an encoder that hides the sensitive columns within the budget.

    Example: `fairveil fit adult.csv --schema schema.yaml --sensitive sex --budget 1.2 -o sex.veil`
    """
    recipe = _recipe(
        split_names(sensitive, file),
        schema,
        labels,
        loss,
        architecture,
        cells,
        blind,
        steps,
        rows,
        held_out,
        seed,
        resume,
        quiet,
    )
    weight = target_weight if target_weight is not None else float(bool(target) and fairness == "demographic_parity")
    recipe = replace(recipe, certified=certified, targets=tuple(target or ()), target_weight=weight, fairness=fairness)
    encoder = workflows.fit_file(file, output, budget, recipe, engine=engine, address=address, processes=processes)
    achieved, promised = encoder.distortion_, encoder.budget_
    certificate = None if certified is None else encoder.certificate_
    if as_json:
        show_json({"veil": output.name, "sha256": sha256_of(output), "budget": promised,
                   "distortion": achieved.to_dict(),
                   "certificate": None if certificate is None else certificate.to_dict()})  # fmt: skip
        return
    if certificate is not None:
        typer.echo(str(certificate))
    typer.echo(f"Wrote {output}: distortion {achieved.mean:.4g}, at most {achieved.upper:.4g} with confidence "
               f"{achieved.confidence:.3g} (budget {promised:g}, {achieved.rows:,} held-out rows). 1 is "
               f"{achieved.unit}.")  # fmt: skip
    if certificate is None and achieved.collapse:
        typer.echo(achieved.collapse)
    if isinstance(promised, float) and certificate is None and achieved.lost > 0.1 * promised:
        typer.echo(f"Of this, {achieved.lost:.3g} is spent before anything is hidden: on draws within bins, numbers "
                   "outside the schema's ranges, and values too rare to be listed.")  # fmt: skip
    told = [f"{column.name!r} ({column.role})" for column in encoder.schema_.columns if column.role in ("keep", "pass")]
    if told:
        typer.echo(f"Released unchanged, by the schema: {', '.join(told)}.")
    share = 1.0 - encoder.fitted_rows_.mean()
    typer.echo(f"{100 * share:.0f} % of the rows were held out: the attackers of an audit learn from them. Keep "
               f"{output.name}.ledger private: it records which rows.")  # fmt: skip


@app.command()
def frontier(
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a folder or pattern of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the veils, their scores and plots.")],
    budgets: Annotated[str, typer.Option(help="Budgets to train together, separated by commas.")] = "0.5,0.8,1.2,1.8",
    sensitive: Sensitive = None,
    target: Annotated[list[str] | None, typer.Option(help="A column to predict from each release.")] = None,
    schema: SchemaFile = None,
    loss: Loss = "log",
    architecture: Architecture = "auto",
    cells: Cells = None,
    blind: Blind = False,
    target_weight: TargetWeight = None,
    fairness: Fairness = "demographic_parity",
    steps: Steps = None,
    rows: Rows = None,
    held_out: HeldOut = 0.3,
    seed: Seed = None,
    resume: Resume = False,
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train veils for several budgets at once, with a table and plots to choose from, and a recommended budget.

    Example: `fairveil frontier adult.csv -s sex --target salary --budgets 0.5,1,2 -o veils`
    """
    recipe = _recipe(
        split_names(sensitive, file),
        schema,
        None,
        loss,
        architecture,
        cells,
        blind,
        steps,
        rows,
        held_out,
        seed,
        resume,
        quiet,
    )
    recipe = replace(recipe, target_weight=target_weight or 0.0, fairness=fairness)
    points = workflows.fit_frontier(
        file, output, parse_budgets(budgets), recipe, target or (), engine=engine, address=address
    )
    if as_json:
        show_json(json.loads(points.to_json(orient="records", force_ascii=False)))
        return
    console.print(_frontier_table(points, target or ()))
    for row in points[~points["met"]].to_dict("records"):
        typer.echo(f"Budget {row['budget']:g} is not met. {row['reason']}")
    chosen = points[points["recommended"]].to_dict("records")
    for row in chosen:
        typer.echo(f"Recommended: {row['budget']:g}. {row['reason']}")
    if not chosen:
        typer.echo("No budget is met: raise the budgets, give more rows, or train for more steps.")
    typer.echo(f"Wrote the veils, frontier.html, frontier.png, frontier.csv and frontier.json to {output}/. "
               "Budget 0 is the original data.")  # fmt: skip


@app.command()
def release(
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file, a folder or pattern of them, or images.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The output: .csv, .parquet, or a new folder.")],
    veil: Annotated[Path | None, typer.Option(help="The veil written by fit.")] = None,
    by: Annotated[
        str, typer.Option(help="How: veil, or matching (rows exchange values with similar rows; needs --schema).")
    ] = "veil",
    schema: Annotated[
        Path | None, typer.Option(help="For --by matching: a schema as inspect writes it, with the roles decided.")
    ] = None,
    certified: Annotated[
        float | None,
        typer.Option(help="For --by matching: bound on ΔDemP of any predictor; 0.05 by default, none with --budget."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="For --by matching: bound on the mean distortion of these rows.")
    ] = None,
    labels: Labels = None,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Do not shuffle rows; their order may reveal S.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Allow rows that were released before.")] = False,
    resume: Resume = False,
    reproducible_insecure: Annotated[
        int | None, typer.Option(help="A seed for the noise, for tests: anyone who knows it can undo the noise.")
    ] = None,
    forget_order: Annotated[
        bool, typer.Option("--forget-order", help="Do not keep the row order in the ledger; no audit is possible.")
    ] = False,
    keep_secret: Annotated[
        bool, typer.Option("--keep-secret", help="Keep the secret of the noise in the ledger, to repeat the release.")
    ] = False,
    person: Person = None,
    known: Known = None,
    few_rows: Annotated[
        bool, typer.Option("--few-rows", help="Release a table of fewer than 50 rows, which may reveal single people.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Write even if the release contradicts the veil.")
    ] = False,
    require_signature: Signature = None,
    memory: Annotated[int, typer.Option(min=64, help="Megabytes for batches and buckets.")] = 1024,
    workers: Annotated[int, typer.Option(min=0, help="Batches drawn at the same time; 0: one per core.")] = 0,
    engine: Engine = "local",
    address: Address = None,
    scratch: Annotated[
        str | None, typer.Option(help="A private folder for unfinished work that all workers can reach.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a censored copy of a file: valid values, shuffled rows, no metadata; with its card.

    Example: `fairveil release adult.csv --veil sex.veil -o censored.csv`

    Without a veil, if all rows are in the file: `fairveil release adult.csv --by matching --schema s.yaml -o new.csv`
    """
    chosen = workflows.Options(
        keep_order=keep_order, again=again, resume=resume, seed=reproducible_insecure, memory=memory, workers=workers,
        remember_order=not forget_order, show_progress=not quiet, person=person, few_rows=few_rows,
        unverified=unverified, known=tuple(known or ()), keep_secret=keep_secret, engine=engine, address=address,
        scratch=scratch,
    )  # fmt: skip
    secret_owner = _owner(by, veil, schema, certified, budget)
    if by == "matching":
        _refuse_options(chosen, {"--labels": labels is not None, "--require-signature": require_signature is not None})
    elif require_signature is not None:
        check_signature(secret_owner, require_signature)
    if keep_order:
        typer.echo("Warning: rows keep their order. If the input is sorted, that alone may reveal S.", err=True)
    if reproducible_insecure is not None:
        typer.echo("Warning: the noise is drawn from a known seed. Anyone who knows the seed can undo it.",
                   err=True)  # fmt: skip
    if by == "matching":
        limit = 0.05 if certified is None and budget is None else certified
        card = workflows.release_by_matching(file, secret_owner, output, chosen, certified=limit, budget=budget)
    else:
        card = workflows.release_file(file, secret_owner, output, chosen, labels)
    if as_json:
        show_json(card)
        return
    total = card["distortion"]["total"]
    limit = card["veil"]["budget"]
    shown = "" if total is None else f", distortion {total:.4g} (budget {'none' if limit is None else limit})"
    typer.echo(
        f"Wrote {output}: {card['release']['rows']:,} rows{shown}. "
        f"Its card: {workflows.card_path(Path(output)).name} and .md."
    )
    for text in (*card["release"]["contradicts_the_veil"], *card["release"]["warnings"]):
        typer.echo(f"Warning: {text}", err=True)
    if card["earlier_releases"]["together"]:
        typer.echo(f"Together with earlier releases: {card['earlier_releases']['together']['text']}")
    if by == "matching":
        typer.echo(printable(card["certificate"]["text"]))
    typer.echo(f"Keep {secret_owner.name}.ledger private: it records which row is which.")


def _owner(by: str, veil: Path | None, schema: Path | None, certified: float | None, budget: float | None) -> Path:
    """The file that a release is made with, next to which its ledger lies: the veil, or the schema for matching."""
    if by not in ("veil", "matching"):
        raise InputError("--by must be veil or matching.")
    if by == "matching":
        if schema is None:
            raise InputError("--by matching needs --schema: run fairveil inspect FILE -s S -o schema.yaml, and decide.")
        if veil is not None:
            raise InputError("--by matching uses no veil: omit --veil.")
        return schema
    if veil is None:
        raise InputError("Name the veil with --veil, or release by matching: --by matching --schema schema.yaml.")
    given = {"--schema": schema, "--certified": certified, "--budget": budget}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise InputError(f"{', '.join(named)} belong to --by matching. A veil has its own schema and budget.")
    return veil


def _refuse_options(chosen: "workflows.Options", more: dict[str, bool]) -> None:
    """Reject options that have no meaning for a release by matching, which is made in one piece."""
    given = {
        "--keep-order": chosen.keep_order, "--resume": chosen.resume, "--person": chosen.person is not None,
        "--unverified": chosen.unverified, "--engine": chosen.engine != "local",
        "--address": chosen.address is not None, "--scratch": chosen.scratch is not None,
        "--workers": chosen.workers != 0, **more,
    }  # fmt: skip
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise InputError(f"--by matching does not take {', '.join(named)}.")


def _frontier_table(points: "pd.DataFrame", targets: Sequence[str]) -> Table:
    """One row per budget, with 95 % intervals."""
    table = Table(title="Fresh models on each release", caption="95 % intervals. * the recommended budget.")
    names = ["S AUC", "S accuracy", *(f"{t} {what}" for t in targets for what in ("accuracy", "ΔDemP"))]
    for name in ("budget", "distortion (at most)", *names):
        table.add_column(Text(printable(name)), justify="right")
    for row in points.to_dict("records"):
        cells = [
            f"{row[name]:.3f} [{row[f'{name} low']:.3f}, {row[f'{name} high']:.3f}]" if row["met"] else "not met"
            for name in names
        ]
        star = " *" if row["recommended"] else ""
        table.add_row(f"{row['budget']:g}{star}", f"{row['distortion']:.3g} ({row['upper']:.3g})", *cells)
    return table


def split_names(given: list[str] | None, file: str | Path) -> list[str]:
    """Column names: one per option, or several separated by commas. A name may itself contain a comma."""
    commas = any("," in text for text in given or ())
    known = workflows.open_table(file).names if commas and Path(file).is_file() else []
    return [name for text in given or () for name in ([text] if text in known else text.split(","))]


def parse_budgets(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError("--budgets must be numbers separated by commas, such as 0.5,1,2.") from error


def _recipe(
    sensitive: list[str], schema: Path | None, labels: Path | None, loss: str, architecture: str, cells: int | None,
    blind: bool, steps: int | None, rows: int | None, held_out: float, seed: int | None, resume: bool, quiet: bool,
) -> "workflows.Recipe":  # fmt: skip
    chosen = workflows.Recipe(tuple(sensitive), schema, labels, loss, architecture, cells, blind, steps, seed=seed,
                              held_out=held_out, resume=resume, show_progress=not quiet)  # fmt: skip
    return chosen if rows is None else replace(chosen, rows=rows)


def _inspected(found: "workflows.Inspection") -> Table:
    secret = " & ".join(found.sensitive)
    caption = f"{found.rows:,} rows." + (
        f" 'tells S': the AUC of predicting {secret} from this column alone (0.5: nothing, 1: everything)."
        if found.majority is not None else ""
    )  # fmt: skip
    # As `Text`: names come from the data and are not markup.
    table = Table(title=Text(printable(found.file)), caption=Text(caption))
    for name in ("column", "role", "kind", "distinct", "missing", "tells S", "notes"):
        table.add_column(name, justify="right" if name in ("distinct", "missing", "tells S") else "left")
    for row in found.found:
        table.add_row(Text(row.column.name), row.column.role or "?", row.column.kind, f"{row.distinct:,}",
                      f"{100 * row.missing:.1f} %" if row.missing else "",
                      "" if row.tells is None else f"{row.tells:.3f}", Text(" ".join(row.notes)))  # fmt: skip
    return table
