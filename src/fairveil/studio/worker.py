"""The process of one job, `python -m fairveil.studio.worker FOLDER TABLE`: calls a workflow and reports progress."""

import fcntl
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from fairveil._utils.errors import BudgetNotMet, InputError, TrainingFailed, VeilFileError
from fairveil._utils.progress import Status, told_to
from fairveil.studio.jobs import LOCK
from fairveil.studio.project import Project

#: Seconds between two reports.
_EVERY = 0.4
_interrupted = False


def main(folder: str, name: str) -> None:
    """Hold the lock, do the job, and write down how it ended."""
    project = Project(Path(folder), name)
    project.prepare()
    lock = os.open(project.state / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _do(project)
    except BlockingIOError:  # another process is at it
        return
    finally:
        os.close(lock)


def _do(project: Project) -> None:
    report = _Report(project)
    try:
        report.write(state="running", title="Starting")
        job = project.recall("job")
        with told_to(report), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _JOBS[str(job["kind"])](project, job["settings"])
        report.write(state="done")
    except KeyboardInterrupt:
        report.write(state="cancelled")
    except (InputError, BudgetNotMet, TrainingFailed, VeilFileError) as error:
        report.write(state="failed", error=str(error))
    except OSError as error:
        report.write(state="failed", error=f"{error.strerror or 'A file cannot be read or written'}.")
    except MemoryError:
        report.write(state="failed", error="There is not enough memory.")
    except Exception as error:
        # Only its type: the text of a foreign error may show a data value. (Foreign code may replace an interrupt.)
        state = "cancelled" if _interrupted else "failed"
        report.write(state=state, error=f"Internal error ({type(error).__name__}). Please report it.")


def _interrupt(number: int, frame: Any) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


class _Report:
    """Writes the progress of the job, at most every `_EVERY` seconds."""

    def __init__(self, project: Project) -> None:
        self._project, self._last = project, 0.0

    def __call__(self, at: Status) -> None:
        if time.monotonic() - self._last >= _EVERY or at.done >= at.total:
            self.write(state="running", title=at.title, done=at.done, total=at.total, unit=at.unit, left=at.left,
                       note=at.note)  # fmt: skip

    def write(self, **values: Any) -> None:
        self._last = time.monotonic()
        self._project.remember("status", {"pid": os.getpid(), **values})


def _inspect(project: Project, settings: dict[str, Any]) -> None:
    from fairveil import workflows
    from fairveil._utils.atomic import write_atomic

    found = workflows.inspect_file(
        workflows.open_table(project.table),
        settings["sensitive"],
        coded=settings.get("coded", []),
        show_progress=True,
    )
    write_atomic(project.schema, found.to_yaml().encode())
    project.remember("inspection", found.to_dict())


def _frontier(project: Project, settings: dict[str, Any]) -> None:
    from fairveil import workflows

    recipe = workflows.Recipe(schema=project.schema, steps=settings["steps"], resume=settings.get("resume", False))
    workflows.fit_frontier(project.table, project.veils, settings["budgets"], recipe, settings["targets"])


def _release(project: Project, settings: dict[str, Any]) -> None:
    """Release, then audit the release and add the audit to its card."""
    from fairveil import workflows

    if not settings.get("resume"):
        for path in (project.report, project.audit):  # of an earlier release
            path.unlink(missing_ok=True)
    veil, hides = project.veils / str(settings["veil"]), settings["hides"]
    options = workflows.Options(again=settings["again"], resume=settings.get("resume", False))
    workflows.release_file(project.table, veil, project.release, options)
    result = workflows.audit_file(project.release, project.table, hides, settings["targets"], veil=veil)
    result.to_json(project.audit)
    result.to_html(project.report)
    workflows.record_audit(project.release, result, veil)


_JOBS = {"inspect": _inspect, "frontier": _frontier, "release": _release}

if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)  # explicitly: a server in the background ignores it, and so would we
    main(sys.argv[1], sys.argv[2])
