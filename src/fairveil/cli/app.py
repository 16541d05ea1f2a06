"""The application: common options, and error handling."""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import fairveil
from fairveil._utils.errors import (
    BudgetNotMet,
    CertificateNotMet,
    DataNotFound,
    InputError,
    TrainingFailed,
    VeilFileError,
)

app = typer.Typer(
    help="Hide sensitive attributes in data within a hard distortion bound.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

#: Errors that the user can fix: their message is shown. For others only the type, as their text may show data.
EXPECTED = (
    InputError,
    BudgetNotMet,
    CertificateNotMet,
    TrainingFailed,
    DataNotFound,
    VeilFileError,
    OSError,
    MemoryError,
)
_INTERRUPTED = 130
_debug = False

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Engine = Annotated[str, typer.Option(help="Where the work runs: local, or ray (a cluster).")]
Address = Annotated[
    str | None, typer.Option(help="The address of a running Ray cluster; by default, one on this machine.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(fairveil.__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(help="A YAML file with options by verb, such as `fit: {budget: 1.2, sensitive: [sex]}`."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Hide sensitive attributes in data within a hard distortion bound.

    From a CSV file to a censored copy: `inspect`, `fit` (or `frontier`), `release`, `audit`, `card`.
    """
    global _debug
    _debug = debug
    if config is not None:
        context.default_map = _read_config(config, context)


def _read_config(path: Path, context: typer.Context) -> dict[str, Any]:
    from fairveil.workflows.inspect import read_yaml  # not before it is needed: it waits for pyarrow

    values = read_yaml(path, "configuration")
    commands = getattr(context.command, "commands", {})
    if not all(isinstance(v, dict) for v in values.values()):
        raise InputError(f"{path.name} must map verbs to their options, such as fit: {{budget: 1.2}}.")
    problems, known = [], {}
    for verb, chosen in values.items():
        if verb not in commands:
            problems.append(f"{path.name}: there is no verb {verb[:40]!r}. Verbs: {', '.join(sorted(commands))}.")
            continue
        flags = {flag.lstrip("-"): option.name for option in commands[verb].params for flag in option.opts}
        problems += [f"{path.name}: {verb} has no option {name!r}." for name in chosen if str(name) not in flags]
        known[verb] = {flags.get(str(name), str(name)): value for name, value in chosen.items()}
    if problems:
        raise InputError(problems)
    return known


def show_json(values: object) -> None:
    """Print plain values as JSON."""
    typer.echo(printable(json.dumps(values, indent=1, ensure_ascii=False, default=str)))


def printable(text: str) -> str:
    """Text for a terminal: control characters are shown by their code, as in JSON."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def main() -> None:
    """Run a verb; errors are printed as one paragraph on standard error."""
    warnings.simplefilter("ignore")  # the verbs report what a user must know
    try:
        app(standalone_mode=True)
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:  # typer's exit code for Ctrl-C
            sys.stderr.write("fairveil: interrupted. Nothing was written under its final name; --resume continues.\n")
        raise
    except EXPECTED as error:
        if _debug:
            raise
        sys.stderr.write(f"fairveil: {printable(told(error))}\n")
        raise SystemExit(2) from None
    except Exception as error:
        if _debug:
            raise
        # Only its type: the text of a foreign error may show a data value.
        sys.stderr.write(f"fairveil: internal error ({type(error).__name__}). Please report it.\n")
        raise SystemExit(3) from None


def told(error: Exception) -> str:
    """The message of an error that the user can fix."""
    if isinstance(error, MemoryError):
        return "There is not enough memory. Existing files are unchanged."
    if isinstance(error, OSError) and error.strerror and not isinstance(error, DataNotFound):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}. Existing files are unchanged."
    return str(error)
