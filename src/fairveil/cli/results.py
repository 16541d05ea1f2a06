"""Verbs that check results: audit, certify, card, sign."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fairveil import workflows
from fairveil._utils.atomic import refuse_overwriting, write_atomic
from fairveil._utils.errors import InputError
from fairveil.cli.app import Address, Engine, Json, Quiet, app, printable, show_json
from fairveil.cli.files import console, split_names
from fairveil.cli.options import Known, Labels, Person, Sensitive, Signature
from fairveil.veil.signing import check_signature, make_key, sign_file

if TYPE_CHECKING:
    from fairveil.auditing.attackers import Profile
    from fairveil.workflows.release.ledger import Ledger


@app.command()
def audit(
    release: Annotated[str, typer.Argument(help="A released CSV or Parquet file, a folder of them, or images.")],
    original: Annotated[str, typer.Option(help="The file or folder it was made from.")],
    sensitive: Sensitive = None,
    target: Annotated[
        list[str] | None, typer.Option(help="A column of the original to predict; may be repeated.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report as one HTML page.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    max_advantage: Annotated[
        float | None, typer.Option(min=0.0, help="Exit with 1 if an attacker's advantage over guessing exceeds this.")
    ] = None,
    max_auc: Annotated[float, typer.Option(help="Exit with 1 if the AUC of an attacker exceeds this.")] = 0.6,
    max_balanced_advantage: Annotated[
        float, typer.Option(help="Exit with 1 if the balanced accuracy of an attacker exceeds 1/K by more than this.")
    ] = 0.1,
    max_gap: Annotated[
        float, typer.Option(help="Exit with 1 if a predictor made from an attacker has a ΔDemP above this.")
    ] = 0.1,
    veil: Annotated[Path | None, typer.Option(help="The veil whose ledger holds the row order.")] = None,
    labels: Labels = None,
    same_order: Annotated[bool, typer.Option("--same-order", help="The rows are in the original order.")] = False,
    person: Person = None,
    known: Known = None,
    profile: Annotated[str, typer.Option(help="quick, or full (more attackers, longer).")] = "quick",
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack a release with fresh models, and measure its remaining utility.

    Exit code 1 if attackers find more than the limits allow, or if a control fails. The default limits refuse a table
    from which only the sensitive column was removed. Results within chance never exceed a limit.

    Example: `fairveil audit censored.csv --original adult.csv -s sex --target salary --report audit.html`
    """
    from fairveil.workflows.many_files import local_path

    for path in (report, save):
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
    here = local_path(release)
    found_card = None if here is None else workflows.card_path(here)
    refuse_overwriting(
        {"report": report, "result": save},
        {"release": here, "original": local_path(original), "veil": veil, "table of labels": labels,
         "card": found_card, "card's text": found_card and found_card.with_suffix(".md")},
    )  # fmt: skip
    result = workflows.audit_file(
        release, original, split_names(sensitive, original), target or (), veil=veil, labels=labels,
        same_order=same_order, person=person, known=known, profile=cast("Profile", profile), show_progress=not quiet,
        engine=engine, address=address,
    )  # fmt: skip
    if report is not None:
        result.to_html(report)
    if save is not None:
        result.to_json(save)
    if here is None:
        typer.echo("The card was not changed: it is in a store. Add the audit to a copy of it with fairveil card.",
                   err=True)  # fmt: skip
    elif not workflows.record_audit(here, result, veil):
        typer.echo("The card was not changed: without the ledger it cannot be verified that these rows match.",
                   err=True)  # fmt: skip
    if as_json:
        show_json(result.to_dict())
    else:
        result.summary(console)
    if not result.valid:
        raise typer.Exit(1)
    exceeded = result.exceeded(
        advantage=max_advantage, auc=max_auc, balanced_advantage=max_balanced_advantage, gap=max_gap
    )
    for text in exceeded:
        typer.echo(text, err=True)
    if exceeded:
        raise typer.Exit(1)


@app.command()
def certify(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file of rows that were not used in fitting.")],
    veil: Annotated[Path, typer.Option(help="A veil fitted with --certified, or --architecture matrix or partition.")],
    target: Annotated[str | None, typer.Option(help="Certify equalized odds given this column.")] = None,
    target_value: Annotated[
        list[str] | None, typer.Option(help="A value of the target; repeat for all. One without rows is not certified.")
    ] = None,
    person: Annotated[str | None, typer.Option(help="The column that identifies people with several rows.")] = None,
    asymptotic: Annotated[
        bool, typer.Option("--asymptotic", help="A tighter bound that holds in the limit of many rows.")
    ] = False,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence of the bound.")] = 0.95,
    unseen_rows: Annotated[bool, typer.Option("--unseen-rows", help="State that no row was used in fitting.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the certificate as JSON.")] = None,
    require_signature: Signature = None,
    as_json: Json = False,
) -> None:
    """Bound the unfairness of any predictor on a veil's releases, present or future.

    Example: `fairveil certify fresh.csv --veil sex.veil --unseen-rows --save certificate.json`
    """
    refuse_overwriting({"certificate": save}, {"input": file, "veil": veil})
    if require_signature is not None:
        check_signature(veil, require_signature)
    found = workflows.certify_file(
        file, veil, target=target, target_values=target_value or (), person=person, asymptotic=asymptotic,
        confidence=confidence, unseen_rows=unseen_rows,
    )  # fmt: skip
    values = workflows.sealed_certificate(found, veil) if save is not None else found.to_dict()
    if save is not None:
        write_atomic(save, (json.dumps(values, indent=1) + "\n").encode())
    if as_json:
        show_json(values)
    else:
        typer.echo(printable(str(found)))


@app.command()
def card(
    release: Annotated[Path, typer.Argument(help="A release with its card next to it.")],
    audit_result: Annotated[
        Path | None, typer.Option("--audit", help="An audit to add, written by audit --save.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A certificate to add, written by certify --save.")] = None,
    veil: Annotated[Path | None, typer.Option(help="The veil whose ledger sealed the audit or certificate.")] = None,
    as_json: Json = False,
) -> None:
    """Show the card of a release: what was done, measured and certified, and what is not promised.

    Example: `fairveil card censored.csv --audit audit.json`
    """
    found = workflows.card_of(release)
    if audit_result is not None:
        found = workflows.with_audit(
            found, workflows.read_json(audit_result, "audit"), workflows.ledger_of(release, veil)
        )
    if certificate is not None:
        found = _certified(found, certificate, workflows.ledger_of(release, veil))
    if audit_result is not None or certificate is not None:
        workflows.write_card(workflows.card_path(release), found)
    if as_json:
        show_json(found)
    else:
        typer.echo(workflows.card_text(found), nl=False)


@app.command()
def sign(
    file: Annotated[Path | None, typer.Argument(help="A veil, a release, a card, or any other file.")] = None,
    key: Annotated[Path | None, typer.Option(help="Sign with this private key: writes FILE.sig.")] = None,
    check: Annotated[Path | None, typer.Option(help="Check FILE.sig against this public key.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Create a private key, and its public half (.pub).")] = None,
) -> None:
    """Sign a file, or check who signed it. A veil from somebody else is only as trustworthy as its signature.

    Example: `fairveil sign --new-key curator.key`, `fairveil sign sex.veil --key curator.key`, and the recipient:
    `fairveil release adult.csv --veil sex.veil --require-signature curator.key.pub -o censored.csv`
    """
    if new_key is not None:
        public = make_key(new_key)
        typer.echo(f"Wrote {new_key}, to be kept secret, and {public}, to be shared.")
    if file is None and new_key is None:
        raise InputError("Name a file to sign with --key, or a new key with --new-key.")
    if file is not None and (key is None) == (check is None):
        raise InputError("Pass --key to sign the file, or --check to check its signature.")
    if file is not None and key is not None:
        typer.echo(f"Wrote {sign_file(file, key)}.")
    if file is not None and check is not None:
        check_signature(file, check)
        typer.echo(f"{file.name} was signed by the owner of {check.name}.")


def _certified(found: dict[str, Any], path: Path, seals: "Ledger") -> dict[str, Any]:
    values = workflows.read_json(path, "certificate", "fairveil certify --save writes one.")
    try:
        return workflows.with_certificate(found, values, seals)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{path.name} is not a certificate, as fairveil certify --save writes it.") from None
