"""Unfinished work: a hidden folder beside the target, held by one process, with which a later run can go on."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from fairveil.errors import BudgetNotMet, InputError, TrainingFailed, VeilFileError
from fairveil.whole import write_whole

#: After these errors, to go on would end in the same way.
HOPELESS = (InputError, BudgetNotMet, TrainingFailed, VeilFileError)
_LOCK, _PLAN = "lock", "plan.json"


@contextmanager
def workplace(target: Path, plan: dict[str, Any], *, resume: bool) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder in which `target` is prepared, and the plan by which it is done.

    plan: what is to be done, as plain values. With `resume`, a folder of an interrupted run is kept if its plan says
    the same; values under the key "private" are those of the interrupted run. When the block ends well, or in a way in
    which it would end again, the folder is removed; after any other interruption it stays for `resume`.
    """
    folder = _folder(target)
    with _held(folder, target):
        for rest in (*target.parent.glob(f".{escape(target.name)}*.partial"), *folder.glob(".*.partial")):
            rest.unlink(missing_ok=True)  # what a killed process was writing
        kept = _read_plan(folder) if resume else None
        if kept is None:
            _clear(folder)
            kept = plan
            write_whole(folder / _PLAN, json.dumps(plan).encode())
        elif {**kept, "private": None} != {**json.loads(json.dumps(plan)), "private": None}:
            raise InputError(
                f"The interrupted work for {target.name} was done with other settings or another input. Repeat it as "
                "it was, or leave --resume out to begin anew."
            )
        try:
            yield folder, kept
        except HOPELESS:
            _remove(folder)
            raise
        _remove(folder)


@contextmanager
def _held(folder: Path, target: Path) -> Iterator[None]:
    """Nobody else works in this folder."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # removed in between by whoever held it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(f"Another process is writing {target.name} at this moment. Nothing was written.") from None
        try:
            if _is_current(descriptor, folder / _LOCK):
                yield
                return
        finally:
            os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _read_plan(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / _PLAN).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _remove(folder: Path) -> None:
    """The plan first: what is left of a folder without one is never gone on with."""
    (folder / _PLAN).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def is_unfinished(target: Path) -> bool:
    """Whether there is interrupted work to go on with."""
    return _read_plan(_folder(target)) is not None


def _folder(target: Path) -> Path:
    return target.with_name(f".{target.name}.unfinished")


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == _LOCK:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
