"""Files that somebody crafted or damaged: each is refused with exit code 2, or gives a correct result.

Mutated veils, schemas, cards, audits, CSV and Parquet files go through the command line, each in a process of its own,
within 10 seconds and 1 GB. Some mutations know the format (a veil with a fitting checksum, a schema with another value
in one place), others change bytes. Cases that fail are kept, with the seed that makes them again.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch
import yaml

import fairveil.workflows
from fairveil.cli import main as run_verb
from fairveil.estimators import load  # noqa: F401  (so that no case pays for importing it)
from fairveil.veil.archive import _digest
from release import in_child, made_up

SECONDS, MEGABYTES = 10.0, 1024
ROWS = 300
LEDGER = "sex.veil.ledger"
#: Values that code does not expect where something else stood.
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, -(2**70), 1e308, -0.5),
    *("", "x", "pass", "sex", "=1+1", "\x1b[31m", "a\nb", "\u2028", "[/b]", "a" * 70_000),
    *([], [[]], {}, {"a": 1}, [None] * 50, ["sex"] * 3),
]


def scene(folder: Path) -> None:
    """What is mutated: a table as CSV and Parquet, a schema, a veil, a release with its card."""
    days = pd.date_range("2020-01-01", periods=ROWS).date
    frame = made_up(ROWS).assign(day=days, seen=pd.date_range("2020-01-01", periods=ROWS, freq="17min"))
    frame.to_csv(folder / "people.csv", index=False)
    frame.to_parquet(folder / "people.parquet", index=False)
    found = fairveil.workflows.inspect_file(fairveil.workflows.open_table(folder / "people.csv"), ["sex"])
    (folder / "schema.yaml").write_text(found.to_yaml())
    recipe = fairveil.workflows.Recipe(("sex",), architecture="feedforward", steps=2, seed=0, show_progress=False)
    fairveil.workflows.fit_file(folder / "people.csv", folder / "sex.veil", 1e6, recipe)
    options = fairveil.workflows.Options(show_progress=False, workers=1)
    fairveil.workflows.release_file(folder / "people.csv", folder / "sex.veil", folder / "out.csv", options)
    (folder / "audit.json").write_text(
        json.dumps({"format": "fairveil-audit-5", "subject": {}, "seal": "", "valid": True})
    )


def changed_bytes(content: bytes, draw: random.Random) -> bytes:
    """A few bytes other than they were."""
    out = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        place = draw.randrange(len(out)) if out else 0
        kind = draw.randrange(6)
        if kind == 0 and out:
            out[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del out[place : place + draw.choice([1, 4, 100, 5000])]
        elif kind == 2:
            out[place:place] = draw.choice(
                [b"\x00", b"\xff" * 4, b'"', b",", b"\n", b"\r", b"[" * 3000, b"{", b"9" * 400, b"\xe2\x80\xa8"]
            )
        elif kind == 3:
            out[place : place + 8] = draw.randbytes(8)
        elif kind == 4:
            chunk = bytes(out[place : place + draw.choice([10, 500])])
            out[place:place] = chunk * draw.choice([1, 50])
        elif kind == 5:
            out = out[: draw.randrange(len(out) + 1)]
    return bytes(out)


def changed_values(values: Any, draw: random.Random) -> Any:
    """Plain values with something else in one place, or without it."""
    places = list(_places(values))
    for _ in range(draw.choice([1, 1, 1, 3])):
        owner, key = draw.choice(places)
        kind = draw.randrange(4)
        try:
            if kind == 0:
                del owner[key]
            elif kind == 1 and isinstance(owner[key], (int, float)):
                owner[key] = owner[key] * draw.choice([-1, 0, 1e9, 1.5, 1e300])
            elif kind == 2 and isinstance(owner, list):
                owner.extend(owner[:3] * draw.choice([1, 1000]))
            else:
                owner[key] = draw.choice(ODD)
        except (KeyError, IndexError, OverflowError):
            continue
    return values


def _places(values: Any) -> Any:
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in list(items)[:400]:
        yield values, key
        yield from _places(value)


def changed_veil(content: bytes, draw: random.Random) -> bytes:
    """A veil with another manifest or other weights and a checksum that fits; or just other bytes."""
    if draw.random() < 0.25:
        return changed_bytes(content, draw)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        text, weights = archive.read("manifest.json"), archive.read("weights.safetensors")
    if draw.random() < 0.8:
        text = json.dumps(changed_values(json.loads(text), draw)).encode()
    else:
        weights = changed_bytes(weights, draw)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", draw.choice([zipfile.ZIP_STORED] * 9 + [zipfile.ZIP_DEFLATED])) as archive:
        for name, part in (
            ("manifest.json", text),
            ("weights.safetensors", weights),
            ("sha256", _digest(text, weights).encode()),
        ):
            archive.writestr(name, part)
    return buffer.getvalue()


def changed_yaml(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.4:
        return changed_bytes(content, draw)
    return yaml.safe_dump(changed_values(yaml.safe_load(content), draw)).encode()


def changed_json(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.3:
        return changed_bytes(content, draw)
    return json.dumps(changed_values(json.loads(content), draw)).encode()


def changed_csv(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return changed_bytes(content, draw)
    lines = [line.split(b",") for line in content.split(b"\n")]
    for _ in range(draw.choice([1, 3, 30])):
        line = draw.choice(lines[: draw.choice([1, len(lines)])])
        odd = draw.choice(
            [b"", b"NA", b"1e999", b"-1", b"=1", b'"', b"\xff", b"9" * 30, b"x" * 70_000, b"\x1b[2J", b"nan", b"inf"]
        )
        line[draw.randrange(len(line))] = odd
    return b"\n".join(b",".join(line) for line in lines)


#: What is mutated, how, how often, and which verb reads it. MUTANT stands for the file.
Kind = tuple[str, Callable[[bytes, random.Random], bytes], float, list[str]]
RELEASE = ["-o", "new.csv", "--quiet", "--again"]
FIT = ["--steps", "1", "--budget", "1000000", "--architecture", "feedforward", "-o", "new.veil", "--quiet"]
KINDS: list[Kind] = [
    ("sex.veil", changed_veil, 0.30, ["release", "people.csv", "--veil", "MUTANT", *RELEASE]),
    ("schema.yaml", changed_yaml, 0.15, ["fit", "people.csv", "--schema", "MUTANT", *FIT]),
    ("out.csv.card.json", changed_json, 0.15, ["card", "out.csv"]),
    ("audit.json", changed_json, 0.05, ["card", "out.csv", "--audit", "MUTANT"]),
    ("people.csv", changed_csv, 0.15, ["release", "MUTANT", "--veil", "sex.veil", *RELEASE]),
    ("people.csv", changed_csv, 0.05, ["inspect", "MUTANT", "-s", "sex"]),
    ("people.parquet", changed_bytes, 0.10, ["release", "MUTANT", "--veil", "sex.veil", *RELEASE]),
    ("people.parquet", changed_bytes, 0.05, ["inspect", "MUTANT"]),
]


def in_place(folder: Path, kind: Kind, content: bytes) -> list[str]:
    """Write the mutant where its verb looks for it; gives the words of the call."""
    name, _, _, words = kind
    target = folder / (name if "MUTANT" not in words else f"mutant{Path(name).suffix}")
    target.write_bytes(content)
    return [target.name if word == "MUTANT" else word for word in words]


def attempt(folder: Path, words: list[str]) -> tuple[int | None, str, float, float]:
    """Exit code (None if it had to be killed), what was said, seconds, and megabytes beyond those at the start."""
    said = folder / "said"

    def work() -> None:
        os.chdir(folder)
        os.environ["FAIRVEIL_STATE_HOME"] = str(folder / "state")
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        faulthandler.dump_traceback_later(SECONDS - 1.0)  # a case that hangs says where
        sys.argv = ["fairveil", *words]
        try:
            run_verb()
        except SystemExit as ended:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(ended.code or 0))

    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = in_child(work)
    code: int | None = None
    while time.monotonic() - begun < SECONDS:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    else:
        os.kill(child, signal.SIGKILL)
        _, _, usage = os.wait4(child, 0)
    text = said.read_text(errors="replace") if said.exists() else ""
    return code, text, time.monotonic() - begun, (usage.ru_maxrss - before) / 1024


def wrong(folder: Path, words: list[str], code: int | None, said: str, megabytes: float) -> str | None:
    """What is wrong with the end of a case, if anything."""
    if code is None:
        return "took too long"
    if megabytes > MEGABYTES:
        return f"took {megabytes:.0f} MB"
    if code not in (0, 2):
        return f"exit code {code}"
    if "Traceback" in said or "internal error" in said or "\x1b[31m" in said or "\x1b[2J" in said:
        return "said what it should not"
    written = [path.name for path in folder.glob("new.*")]
    if code == 2 and any(name in ("new.csv", "new.veil") for name in written):
        return "refused, and written all the same"
    if code == 0 and words[0] == "release":
        out = pd.read_csv(folder / "new.csv", dtype=str, keep_default_na=False)
        if "sex" in out.columns or not len(out) or "role" not in out.columns:
            return "a release that is none"
        # A forged veil may list any category: that is what signatures are for.
        if "mutant.veil" not in words and not set(out["role"]) <= {"a", "b", "c", ""}:
            return "a value that was not in the table"
    return None


def clean(folder: Path) -> None:
    """As it was before a case: else the ledger and the list of ledgers would grow, and each case would take longer."""
    shutil.rmtree(folder / "state", ignore_errors=True)
    shutil.rmtree(folder / LEDGER, ignore_errors=True)
    shutil.copytree(folder / "kept.ledger", folder / LEDGER)
    for path in (*folder.glob("new*"), *folder.glob(".new*"), *folder.glob("mutant*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run(cases: int, start: int, seed: int, kept: Path) -> int:
    """All cases; gives how many went wrong."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    assert os.waitpid(in_child(lambda: scene(folder)), 0)[1] == 0, "the scene could not be set"
    shutil.copytree(folder / LEDGER, folder / "kept.ledger")
    originals = {name: (folder / name).read_bytes() for name in {kind[0] for kind in KINDS}}
    ends: Counter[str] = Counter()
    slowest = most = 0.0
    failures = 0
    begun = time.monotonic()
    for case in range(start, start + cases):
        draw = random.Random(f"{seed}-{case}")
        kind = draw.choices(KINDS, [each[2] for each in KINDS])[0]
        content = kind[1](originals[kind[0]], draw)
        words = in_place(folder, kind, content)
        code, said, seconds, megabytes = attempt(folder, words)
        slowest, most = max(slowest, seconds), max(most, megabytes)
        problem = wrong(folder, words, code, said, megabytes)
        ends[f"{kind[0]} ({words[0]}): {'WRONG' if problem else 'refused' if code == 2 else 'a correct result'}"] += 1
        if problem:
            failures += 1
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{seed}-{case}-{kind[0]}").write_bytes(content)
            print(f"case {seed}-{case}: fairveil {' '.join(words)}: {problem}. It said: {said[-2000:]!r}", flush=True)
        clean(folder)
        for name, original in originals.items():
            with contextlib.suppress(OSError):
                (folder / name).write_bytes(original)
        if (case + 1 - start) % 1000 == 0:
            print(
                f"{case + 1 - start:,} of {cases:,} cases, {time.monotonic() - begun:.0f} s, {failures} wrong",
                flush=True,
            )
    for end, count in sorted(ends.items()):
        print(f"{count:6,}  {end}")
    print(f"{cases:,} files, {failures} wrong; the slowest took {slowest:.1f} s, the largest {max(most, 0):.0f} MB.")
    shutil.rmtree(folder)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0, help="the first case: one that went wrong can be run again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, default=Path("results/fuzz"), help="where cases that went wrong are kept")
    chosen = parser.parse_args()
    sys.exit(1 if run(chosen.cases, chosen.start, chosen.seed, chosen.kept) else 0)


if __name__ == "__main__":
    main()
