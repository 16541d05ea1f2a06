"""Long work in a process of its own, which outlives pages and the server. Its state is in the project's folder.

A job is a JSON file with what to do (`job.json`) and one with how far it is (`status.json`). The worker holds a lock as
long as it lives, so a job whose lock is free but whose status says "running" was killed, and can be resumed.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from fairveil._utils.errors import InputError
from fairveil.studio.project import Project

LOCK = "worker.lock"


@dataclass(frozen=True)
class State:
    """How a job stands. state: none, running, done, failed, cancelled, or interrupted (its process was killed)."""

    kind: str
    state: str
    status: dict[str, Any]

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self.state == "running"

    @property
    def resumable(self) -> bool:
        """Whether it can go on where it stopped."""
        return self.state in ("cancelled", "interrupted")


def start(project: Project, kind: str, settings: dict[str, Any]) -> None:
    """Start a job; one at a time for each table."""
    refuse_second(project)
    project.remember("job", {"kind": kind, "settings": settings})
    _run(project)


def resume(project: Project) -> None:
    """Continue a job that was cancelled or killed."""
    refuse_second(project)
    job = project.recall("job")
    if not job:
        raise InputError("There is nothing to resume.")
    project.remember("job", {**job, "settings": {**job.get("settings", {}), "resume": True}})
    _run(project)


def cancel(project: Project) -> None:
    """Stop the running job; what it has done is kept."""
    number = project.recall("status").get("pid")
    if _alive(project) and isinstance(number, int) and number > 1:
        os.kill(number, signal.SIGINT)  # the lock is held, so the process is the worker


def state_of(project: Project) -> State:
    """The latest job of a table."""
    job, status = project.recall("job"), project.recall("status")
    kind = str(job.get("kind", ""))
    if not kind:
        return State("", "none", {})
    if _alive(project):
        return State(kind, "running", status)
    ended = str(status.get("state", "interrupted"))
    return State(kind, "interrupted" if ended == "running" else ended, status)


def refuse_second(project: Project) -> None:
    """Raise if a job of this table is running: nothing of the table may be changed meanwhile."""
    if _alive(project):
        raise InputError("A job for this table is running already. Wait for it, or cancel it.")


def _run(project: Project) -> None:
    project.remember("status", {"state": "running", "title": "Starting"})
    process = subprocess.Popen(
        [sys.executable, "-m", "fairveil.studio.worker", str(project.folder), project.name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, env={**os.environ, "MPLBACKEND": "Agg"}, cwd=project.folder,
    )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not stay as a zombie
    _wait_for_lock(project)


def _wait_for_lock(project: Project, seconds: float = 10.0) -> None:
    """Until the worker holds its lock: before, a page would take the job for a killed one."""
    end = time.monotonic() + seconds
    while not _alive(project) and time.monotonic() < end and project.recall("status").get("state") == "running":
        time.sleep(0.02)


def _alive(project: Project) -> bool:
    try:
        opened = os.open(project.state / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False
