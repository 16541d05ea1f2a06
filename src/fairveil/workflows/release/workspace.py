"""Unfinished work: a hidden folder next to the target, locked by one process, which a later run can resume.

Others may have write access to the folder's location. It is opened once, without following links, and used only if it
is ours; files in it are deleted only by our own names, relative to the open folder.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairveil._utils.atomic import PRIVATE, is_partial, write_atomic
from fairveil._utils.errors import BudgetNotMet, CertificateNotMet, InputError, TrainingFailed, VeilFileError

#: Errors that a retry cannot fix.
FINAL_ERRORS = (InputError, BudgetNotMet, CertificateNotMet, TrainingFailed, VeilFileError)
_LOCK, _PLAN, _FINISHED = "lock", "plan.json", "finished"
_PARTIAL = r"\..+\.[0-9a-f]{16}\.partial"
_OWN_NAMES = re.compile(
    rf"lock|plan\.json|order|checkpoint|finished(\.csv|\.parquet)?|part-\d{{8}}\.arrow"
    rf"|bucket-[0-9a-f]{{16}}-\d{{8}}\.parquet|order-[0-9a-f]{{16}}-\d{{8}}|{_PARTIAL}"
)
_OWN_IMAGES = re.compile(rf"\d+\.png|part-\d{{5,8}}\.parquet|_manifest\.json|{_PARTIAL}")


@contextmanager
def workspace(
    target: Path, plan: dict[str, Any], *, resume: bool,
    abandoned: Callable[[dict[str, Any]], None] = lambda plan: None,
) -> Iterator[tuple[Path, dict[str, Any]]]:  # fmt: skip
    """The folder in which `target` is prepared, and the plan for it.

    plan: the settings, as plain values. With `resume`, the folder of an interrupted run is reused if its plan is the
    same; values under the key "private" are those of the interrupted run. Without, `abandoned` is called with the plan
    of an interrupted run before its work is removed. When the block succeeds, or fails with an error that a retry
    cannot fix, the folder is removed; after any other interruption it stays for `resume`.
    """
    folder = _folder(target)
    with _held(folder, target) as opened:
        _remove_partials(target)
        found = _read_plan(folder)
        kept = found if resume else None
        if kept is None:
            if found is not None:
                abandoned(found)
            _clear(opened, _OWN_NAMES, keep=_LOCK)
            kept = plan
            write_atomic(folder / _PLAN, json.dumps(plan).encode(), PRIVATE)
        elif {**kept, "private": None} != {**json.loads(json.dumps(plan)), "private": None}:
            raise InputError(
                f"The interrupted work for {target.name} was done with other settings or another input. Use the same "
                "settings and input, or omit --resume to start again."
            )
        try:
            yield folder, kept
        except FINAL_ERRORS:
            _remove(folder, opened)
            raise
        _remove(folder, opened)


@contextmanager
def _held(folder: Path, target: Path) -> Iterator[int]:
    """Open the folder and hold its lock."""
    while True:
        opened = _opened(folder)
        try:
            try:
                lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE, dir_fd=opened)
            except FileNotFoundError:
                continue  # removed in between by its holder
            try:
                _lock(lock, target)
                if _is_current(lock, folder / _LOCK):
                    _refuse_foreign(folder, opened)
                    yield opened
                    return
            finally:
                os.close(lock)
        finally:
            os.close(opened)


def _lock(descriptor: int, target: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"Another process is writing {target.name} now. Nothing was written.") from None


def _opened(folder: Path) -> int:
    """Open the folder, creating it if necessary; raise unless it is a folder of our own."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise InputError(
            f"{folder.name} is where unfinished work is kept, but it is a link or not a folder. Nothing in it was "
            "touched. Find out who made it, remove it, and run again."
        ) from None
    status = os.fstat(opened)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        os.close(opened)
        raise InputError(
            f"The folder {folder.name} belongs to somebody else, or others can write to it. Nothing in it was touched. "
            "Find out who made it, remove it, and run again."
        )
    return opened


def _refuse_foreign(folder: Path, opened: int) -> None:
    strange = [name for name in os.listdir(opened) if not _OWN_NAMES.fullmatch(name)]
    if strange:
        raise InputError(
            f"The folder {folder.name} holds {len(strange)} files that fairveil does not write. Nothing in it was "
            "touched. Move them away, and run again."
        )


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == os.lstat(path).st_ino
    except FileNotFoundError:
        return False


def _remove_partials(target: Path) -> None:
    """Remove what a killed process was writing for this target: the release itself and its card."""
    names = (target.name, f"{target.name}.card.json", f"{target.name}.card.md")
    for rest in target.parent.glob(".*.partial"):
        if any(is_partial(rest.name, name) for name in names):
            rest.unlink(missing_ok=True)


def _read_plan(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / _PLAN).read_text("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("private"), dict) else None


def is_unfinished(target: Path) -> bool:
    """Whether there is interrupted work to resume."""
    return not _folder(target).is_symlink() and _read_plan(_folder(target)) is not None


def _folder(target: Path) -> Path:
    return target.with_name(f".{target.name}.unfinished")


def _remove(folder: Path, opened: int) -> None:
    """Remove the plan first: a folder without a plan is never resumed."""
    _unlink(_PLAN, opened)
    _clear(opened, _OWN_NAMES)
    with suppress(OSError):  # files of others are not ours to delete
        folder.rmdir()


def _clear(opened: int, own: re.Pattern[str], keep: str = "") -> None:
    """Delete files with our own names, and the folder of finished images."""
    for name in os.listdir(opened):
        if name == keep or not own.fullmatch(name):
            continue
        if stat.S_ISDIR(os.lstat(name, dir_fd=opened).st_mode):
            if name == _FINISHED:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
                try:
                    _clear(inner, _OWN_IMAGES)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=opened)
        else:
            _unlink(name, opened)


def _unlink(name: str, opened: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=opened)
