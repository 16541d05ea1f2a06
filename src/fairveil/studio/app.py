"""The application: routes, forms and pages. Pages are rendered here; the work is done by jobs (`worker`)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fairveil._utils.errors import InputError
from fairveil._utils.progress import duration
from fairveil.studio import commands, jobs
from fairveil.studio.project import Project, projects
from fairveil.studio.security import Guard, report_policy

_HERE = Path(__file__).parent
_ROLES = {
    "encode": "released, censored",
    "sensitive": "hidden, not released",
    "drop": "not released",
    "keep": "released unchanged; the encoder sees it and changes other columns more",
    "pass": "released unchanged; the encoder does not see it (identifiers, free text)",
    "": "not decided",
}
_BUDGETS = "0.5, 0.8, 1.2, 1.8"
_MOST_BUDGETS, _MOST_FIELDS = 20, 20_000
#: Training steps offered; None is the encoder's default.
_STEPS = {"standard": None, "quick": 300, "trial": 30}
_STEP_NAMES = ("hide", "columns", "learn", "choose", "report")

_TEMPLATES = jinja2.Environment(
    loader=jinja2.ChoiceLoader(
        [jinja2.PackageLoader("fairveil.studio", "templates"), jinja2.PackageLoader("fairveil.report", ".")]
    ),
    autoescape=True,  # names and values come from the data
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

Handler = Callable[[Request], Awaitable[Response]]


def make_app(folder: Path, *, token: str, port: int, chosen: str | None = None) -> ASGIApp:
    """The application for one folder, behind its guard. chosen: the table to begin with."""
    studio = Studio(folder, chosen)
    table = "/t/{key:str}"
    routes = [
        Route("/", studio.home),
        Route("/static/{name:str}", studio.static),
        *(Route(f"{table}/{name}", getattr(studio, name)) for name in _STEP_NAMES),
        Route(f"{table}/hide", studio.start_inspection, methods=["POST"]),
        Route(f"{table}/columns", studio.save_roles, methods=["POST"]),
        Route(f"{table}/learn", studio.start_learning, methods=["POST"]),
        Route(f"{table}/choose", studio.start_release, methods=["POST"]),
        Route(f"{table}/preview/{{number:int}}", studio.preview),
        Route(f"{table}/job", studio.job),
        Route(f"{table}/cancel", studio.cancel, methods=["POST"]),
        Route(f"{table}/resume", studio.resume, methods=["POST"]),
        Route(f"{table}/file/{{what:str}}", studio.download),
    ]
    handlers = {InputError: studio.problem, 404: studio.absent, 500: studio.failure}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token=token, port=port)


class Studio:
    """The pages of one folder."""

    def __init__(self, folder: Path, chosen: str | None) -> None:
        self._folder, self._chosen = folder, chosen

    # Pages

    async def home(self, request: Request) -> Response:
        """The tables of the folder; if one was named on the command line, its first page."""
        found = projects(self._folder)
        chosen = next((project for project in found if project.name == self._chosen), None)
        if chosen is not None and "all" not in request.query_params:
            return _to(chosen, _next(chosen))
        return _page("home", folder=self._folder.name or str(self._folder),
                     tables=[(project, _next(project)) for project in found])  # fmt: skip

    async def hide(self, request: Request) -> Response:
        """Choose the sensitive columns and those that should stay useful."""
        project = self._project(request)
        names = await run_in_threadpool(_names, project)
        chosen = project.recall("chosen")
        return self._step(project, "hide", names=names, sensitive=chosen.get("sensitive", []),
                          targets=chosen.get("targets", []), same=None)  # fmt: skip

    async def columns(self, request: Request) -> Response:
        """Every column with its proposed role."""
        project = self._project(request)
        found, chosen = project.recall("inspection"), project.recall("chosen")
        if not found or not project.schema.is_file():
            return self._waiting(project, "columns", "inspect", "hide")
        roles = await run_in_threadpool(_roles, project)
        rows = [{**column, "role": roles.get(column["name"]) or ""} for column in found["columns"]]
        return self._step(project, "columns", found=found, rows=rows, roles=_ROLES, coded=chosen.get("coded", []),
                          problem=request.query_params.get("undecided"),
                          same=commands.inspecting(project, found["sensitive"]))  # fmt: skip

    async def learn(self, request: Request) -> Response:
        """Choose budgets and learn."""
        project = self._project(request)
        chosen = project.recall("chosen")
        budgets = chosen.get("budgets", [float(text) for text in _BUDGETS.split(",")])
        steps = chosen.get("steps", "standard")
        same = commands.learning(project, budgets, chosen.get("targets", []), _STEPS[steps])
        return self._step(project, "learn", budgets=", ".join(f"{b:g}" for b in budgets), speeds=_STEPS, speed=steps,
                          ready=project.schema.is_file(), same=same)  # fmt: skip

    async def choose(self, request: Request) -> Response:
        """The points of the frontier, and the release of one of them."""
        from fairveil import workflows
        from fairveil.report.frontier import points_charts, points_panels

        project = self._project(request)
        if not (project.veils / "frontier.json").is_file():
            return self._waiting(project, "choose", "frontier", "learn")
        found = await run_in_threadpool(workflows.read_frontier, project.veils)
        panels = points_panels(found)
        marked = next((panel["number"] for panel in panels if panel["recommended"]), len(panels) - 1)
        veil = next((panel["veil"] for panel in panels if panel["number"] == marked), None) or "BUDGET.veil"
        return self._step(project, "choose", found=found, charts=points_charts(found), panels=panels, chosen=marked,
                          same=commands.releasing(project, veil, found["hides"], found["targets"]))  # fmt: skip

    async def preview(self, request: Request) -> Response:
        """What one point does to the columns, with example rows. Nothing of it is stored."""
        from fairveil import workflows
        from fairveil.report.page import marginal_chart

        project = self._project(request)
        point = await run_in_threadpool(_point, project, request.path_params["number"])
        if not point.get("veil"):
            return HTMLResponse("")
        found = await run_in_threadpool(workflows.preview_veil, project.table, project.veils / point["veil"])
        marginals = found.marginals.to_dict("records")
        columns = sorted(found.columns.to_dict("records"), key=lambda row: -row["drift"])
        charts = [(row["column"], marginal_chart(row["column"], marginals)) for row in columns]
        return _page("preview", found=found, columns=columns, charts=charts, budget=point["budget"])

    async def report(self, request: Request) -> Response:
        """The release, what attackers find in it, and everything to download."""
        project = self._project(request)
        if not project.release.is_file():
            return self._waiting(project, "report", "release", "choose")
        audit, card = await run_in_threadpool(_results, project)
        return self._step(project, "report", audit=audit, card=card, files=project.downloads(), same=None)

    # Forms

    async def start_inspection(self, request: Request) -> Response:
        """Inspect with the chosen sensitive columns."""
        project, form = self._project(request), await _form(request)
        jobs.refuse_second(project)
        names = await run_in_threadpool(_names, project)
        sensitive = [name for name in form.get("sensitive", []) if name in names]
        targets = [name for name in form.get("targets", []) if name in names and name not in sensitive]
        if not sensitive:
            raise InputError("Choose at least one column to hide.")
        project.remember(
            "chosen", {**project.recall("chosen"), "sensitive": sensitive, "targets": targets, "coded": []}
        )
        await run_in_threadpool(jobs.start, project, "inspect", {"sensitive": sensitive})
        return _to(project, "columns")

    async def save_roles(self, request: Request) -> Response:
        """Save edited roles as the schema; inspect again if numbers became labels or the other way round."""
        from fairveil import workflows

        project, form = self._project(request), await _form(request)
        jobs.refuse_second(project)
        found, chosen = project.recall("inspection"), project.recall("chosen")
        if not found:
            raise InputError("Inspect the table first.")
        given = form.get("role", [])
        names = [column["name"] for column in found["columns"]]
        if len(given) != len(names):
            raise InputError("The table was inspected again in another tab. Reload the page.")
        coded = [names[int(i)] for i in form.get("coded", []) if i.isdigit() and int(i) < len(names)]
        if sorted(coded) != sorted(chosen.get("coded", [])):
            project.remember("chosen", {**chosen, "coded": coded})
            settings = {"sensitive": found["sensitive"], "coded": coded}
            await run_in_threadpool(jobs.start, project, "inspect", settings)
            return _to(project, "columns")
        roles = {name: role or None for name, role in zip(names, given, strict=True)}
        left = await run_in_threadpool(workflows.edit_roles, project.schema, found, roles)
        if left or "sensitive" not in roles.values():
            return _to(project, "columns?undecided=1#problem")
        return _to(project, "learn")

    async def start_learning(self, request: Request) -> Response:
        """Learn the frontier."""
        project, form = self._project(request), await _form(request)
        jobs.refuse_second(project)
        budgets = _budgets(_one(form, "budgets"))
        speed = _one(form, "speed")
        if speed not in _STEPS:
            raise InputError("Choose one of the offered speeds.")
        chosen = {**project.recall("chosen"), "budgets": budgets, "steps": speed}
        project.remember("chosen", chosen)
        settings = {"budgets": budgets, "steps": _STEPS[speed], "targets": chosen.get("targets", [])}
        (project.veils / "frontier.json").unlink(missing_ok=True)  # the page shows the points of one learning only
        await run_in_threadpool(jobs.start, project, "frontier", settings)
        return _to(project, "choose")

    async def start_release(self, request: Request) -> Response:
        """Release at the chosen point, and audit."""
        from fairveil import workflows

        project, form = self._project(request), await _form(request)
        number = _one(form, "number")
        point = await run_in_threadpool(_point, project, int(number) if number.isdigit() else -1)
        if not point.get("veil"):
            raise InputError("This point has no veil: its budget is not met, or it is the original data.")
        found = await run_in_threadpool(workflows.read_frontier, project.veils)
        settings = {"veil": point["veil"], "hides": found["hides"], "targets": found["targets"],
                    "again": "again" in form}  # fmt: skip
        await run_in_threadpool(jobs.start, project, "release", settings)
        return _to(project, "report?wait=1")

    # Jobs and files

    async def job(self, request: Request) -> Response:
        """How far the job is, for the page's script."""
        found = jobs.state_of(self._project(request))
        return JSONResponse({"state": found.state, "kind": found.kind, **_progress(found.status)})

    async def cancel(self, request: Request) -> Response:
        """Stop the job."""
        project = self._project(request)
        await run_in_threadpool(jobs.cancel, project)
        return RedirectResponse(_back(request, project), status_code=303)

    async def resume(self, request: Request) -> Response:
        """Continue the job."""
        project = self._project(request)
        await run_in_threadpool(jobs.resume, project)
        return RedirectResponse(_back(request, project), status_code=303)

    async def download(self, request: Request) -> Response:
        """One of the project's own results; nothing else is served."""
        from fairveil.report.frontier import script_digest

        project, what = self._project(request), request.path_params["what"]
        path = project.downloads().get(what)
        if path is None:
            return await self.absent(request, InputError(""))
        if what in ("report", "frontier") and "save" not in request.query_params:
            policy = report_policy(script_digest() if what == "frontier" else None)
            return FileResponse(path, media_type="text/html", headers={"content-security-policy": policy})
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    async def static(self, request: Request) -> Response:
        """The style sheet and the script."""
        if request.path_params["name"] == "studio.css":
            return Response(_TEMPLATES.get_template("studio.css.j2").render(), media_type="text/css")
        if request.path_params["name"] == "studio.js":
            return FileResponse(_HERE / "static" / "studio.js", media_type="text/javascript")
        return await self.absent(request, InputError(""))

    # Errors

    async def problem(self, request: Request, error: Exception) -> Response:
        """A problem that the user can fix."""
        problems = error.problems if isinstance(error, InputError) else (str(error),)
        return _page("problem", 400, problems=problems, back=request.url.path)

    async def absent(self, request: Request, error: Exception) -> Response:
        """Nothing is there."""
        return _page("problem", 404, problems=("There is no such page or file.",), back="/")

    async def failure(self, request: Request, error: Exception) -> Response:
        """An internal error: only its type is shown, its text may hold data."""
        told = f"Internal error ({type(error).__name__}). Please report it."
        return _page("problem", 500, problems=(told,), back="/")

    def _project(self, request: Request) -> Project:
        key = request.path_params["key"]
        for project in projects(self._folder):
            if project.key == key:
                return project
        raise InputError("This table is no longer in the folder.")

    def _step(self, project: Project, step: str, **values: Any) -> Response:
        job = jobs.state_of(project)
        return _page(step, project=project, step=step, job=job, progress=_progress(job.status), steps=_steps(project),
                     **values)  # fmt: skip

    def _waiting(self, project: Project, step: str, kind: str, before: str) -> Response:
        """The page of a result that is not there yet: its job's progress, or the way to start it."""
        job = jobs.state_of(project)
        if job.kind != kind or job.state in ("none", "done"):
            return _to(project, before)
        return self._step(project, "waiting", at=step, before=before, same=None)


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_TEMPLATES.get_template(f"{name}.html.j2").render(**values), status)


def _to(project: Project, page: str) -> RedirectResponse:
    return RedirectResponse(f"/t/{project.key}/{page}", status_code=303)


def _back(request: Request, project: Project) -> str:
    wanted = request.query_params.get("to", "")
    return f"/t/{project.key}/{wanted if wanted in _STEP_NAMES else _next(project)}"


def _next(project: Project) -> str:
    """The furthest page of a project that has something to show."""
    job = jobs.state_of(project)
    if job.running or job.resumable:
        return {"inspect": "columns", "frontier": "choose", "release": "report"}.get(job.kind, "hide")
    if project.release.is_file() and project.report.is_file():
        return "report"
    if (project.veils / "frontier.json").is_file():
        return "choose"
    return "columns" if project.recall("inspection") and project.schema.is_file() else "hide"


def _steps(project: Project) -> list[tuple[str, str, bool]]:
    """Name, title, and whether there is something to see."""
    ready = {
        "hide": True, "columns": project.schema.is_file() and bool(project.recall("inspection")),
        "learn": project.schema.is_file() and bool(project.recall("inspection")),
        "choose": (project.veils / "frontier.json").is_file(), "report": project.release.is_file(),
    }  # fmt: skip
    titles = {"hide": "What to hide", "columns": "Columns", "learn": "Learn", "choose": "Choose", "report": "Release"}
    return [(name, titles[name], ready[name]) for name in _STEP_NAMES]


def _progress(status: dict[str, Any]) -> dict[str, Any]:
    """The status of a job as a page shows it."""
    done, total = status.get("done", 0), status.get("total", 0)
    left = status.get("left")
    text = str(status.get("title", ""))
    if total:
        text += f": {done:,} of {total:,} {status.get('unit', '')}"
    return {
        "text": text,
        "note": str(status.get("note", "")),
        "share": done / total if total else None,
        "left": "" if left is None else f"about {duration(left)} left",
        "error": str(status.get("error", "")),
    }


def _names(project: Project) -> list[str]:
    from fairveil import workflows

    return list(workflows.open_table(project.table).names)


def _roles(project: Project) -> dict[str, str | None]:
    from fairveil.workflows.inspect import read_yaml

    listed = read_yaml(project.schema, "schema").get("columns") or []
    return {str(column["name"]): column.get("role") for column in listed if isinstance(column, dict)}


def _point(project: Project, number: int) -> dict[str, Any]:
    from fairveil import workflows

    points: list[dict[str, Any]] = workflows.read_frontier(project.veils)["points"]
    if not 0 <= number < len(points):
        raise InputError("There is no such point.")
    point = points[number]
    veil = point.get("veil")
    # The file may have been changed: a veil must be in the folder itself.
    return {**point, "veil": veil if isinstance(veil, str) and Path(veil).name == veil else None}


def _results(project: Project) -> tuple[dict[str, Any] | None, str]:
    from fairveil import workflows
    from fairveil.auditing.result import LIMITS, AuditResult

    card = workflows.card_of(project.release)
    if not project.audit.is_file():
        return None, workflows.card_text(card)
    found = AuditResult.from_dict(workflows.read_json(project.audit, "audit"))
    if found.subject.get("release") != card["release"]["sha256"]:
        return None, workflows.card_text(card)
    return {"headline": found.headline(), "verdict": found.verdict(), "found": found.valid and found.found,
            "valid": found.valid,
            "exceeded": found.exceeded(**LIMITS) if found.valid else []}, workflows.card_text(card)  # fmt: skip


async def _form(request: Request) -> dict[str, list[str]]:
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InputError("This form has too many fields.") from None


def _one(form: dict[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0]


def _budgets(text: str) -> list[float]:
    try:
        found = sorted({float(part) for part in text.replace(";", ",").split(",") if part.strip()})
    except ValueError:
        raise InputError("Budgets must be numbers separated by commas, such as 0.5, 1, 2.") from None
    if not found or len(found) > _MOST_BUDGETS or not all(0 < budget < 1e6 for budget in found):
        raise InputError(f"Name one to {_MOST_BUDGETS} budgets above 0.")
    return found
