"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Sensitive = Annotated[
    list[str] | None,
    typer.Option("--sensitive", "-s", help="A column to hide, or several separated by commas; may be repeated."),
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="A schema as inspect writes it (YAML or JSON).")]
Labels = Annotated[Path | None, typer.Option(help="For a folder of images: a table with 'file' and other columns.")]
Architecture = Annotated[
    str,
    typer.Option(help="auto, transport, feedforward, partition, matrix, gaussian, transposed_conv, noisy_autoencoder."),
]
Loss = Annotated[
    str, typer.Option(help="The adversary's loss: log, zero_one or squared, which hides numbers as such, not ranges.")
]
Cells = Annotated[int | None, typer.Option(help="Number of records, for --architecture matrix or partition.")]
Blind = Annotated[bool, typer.Option("--blind", help="The encoder does not see S, in fit or in release.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(help="A column to predict: a known task (--target-weight), or the truth (--fairness)."),
]
TargetWeight = Annotated[
    float | None, typer.Option(min=0.0, help="The weight of keeping the targets predictable; 1 is a good value.")
]
Fairness = Annotated[
    str,
    typer.Option(help="demographic_parity: hide S. equalized_odds: hide what the target does not say of S already."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps; fewer are faster and leak more.")]
Rows = Annotated[
    int | None, typer.Option(min=100, help="Train on a sample of at most this many rows (default 200,000).")
]
HeldOut = Annotated[
    float,
    typer.Option("--held-out", min=0.01, max=0.8, help="Share of rows that no encoder sees: audits learn from them."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed for training (never for a release).")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")]
Signature = Annotated[
    Path | None, typer.Option(help="Use the veil only if the owner of this public key signed it (see sign).")
]
Person = Annotated[str | None, typer.Option(help="A column that identifies people, if they have several rows.")]
Known = Annotated[
    list[str] | None,
    typer.Option(help="A column that an attacker knows of a person, for presence and absence; may be repeated."),
]
