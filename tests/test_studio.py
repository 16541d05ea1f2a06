"""The studio behind its guard: who is let in, what is served, and the whole path from a table to a report."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import typer

from asgi import Browser
from helpers import people

pytest.importorskip("starlette", reason="the studio is not installed")

from fairveil.cli.main import app as command_line
from fairveil.studio import app as studio_app
from fairveil.studio import jobs, worker
from fairveil.studio.app import make_app
from fairveil.studio.project import Project, projects

PORT = 8123
HERE = f"http://127.0.0.1:{PORT}"
TOKEN = "once-and-only-once"


def client(folder, chosen=None):
    """A browser that has not opened the link yet."""
    return Browser(make_app(folder, token=TOKEN, port=PORT, chosen=chosen), HERE)


def admitted(folder, chosen=None):
    """A browser that has."""
    browser = client(folder, chosen)
    assert browser.get(f"/?token={TOKEN}").status_code == 303
    return browser


def post(browser, address, **form):
    return browser.post(address, form, headers={"origin": HERE})


@pytest.fixture
def folder(tmp_path):
    frame, s, y = people(1200)
    frame.assign(sex=s["sex"], hired=y).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


@pytest.fixture
def project(folder):
    return Project(folder, "people.csv")


@pytest.fixture
def at_once(monkeypatch):
    """Jobs run in this process, so that they are done when the page answers."""
    monkeypatch.setattr(jobs, "_run", lambda project: worker.main(str(project.folder), project.name))
    monkeypatch.setitem(studio_app._STEPS, "trial", 15)


def test_nobody_is_let_in_without_the_token(folder):
    browser = client(folder)
    for address in ("/", "/?token=wrong", "/static/studio.js", f"/t/{Project(folder, 'people.csv').key}/hide"):
        answer = browser.get(address)
        assert answer.status_code == 403
        assert "people" not in answer.text
    assert browser.post(f"/?token={TOKEN}", headers={"origin": HERE}).status_code == 403


def test_the_token_works_once(folder):
    first = client(folder)
    answer = first.get(f"/?token={TOKEN}")
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    assert first.get("/").status_code == 200
    first.cookies.clear()
    assert first.get(f"/?token={TOKEN}").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": f"evil.example:{PORT}"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_forged_hosts_and_origins_are_refused(folder, project, headers):
    browser = admitted(folder)
    address = f"/t/{project.key}/hide"
    assert browser.get(address, headers=headers).status_code == 403
    assert browser.post(address, form={"sensitive": "sex"}, headers={"origin": HERE, **headers}).status_code == 403
    assert not project.state.exists()


def test_a_form_without_an_origin_is_refused(folder, project):
    browser = admitted(folder)
    assert browser.post(f"/t/{project.key}/hide", form={"sensitive": "sex"}).status_code == 403
    assert browser.send("DELETE", f"/t/{project.key}/hide").status_code == 403


def test_every_answer_has_a_strict_policy(folder, project):
    browser = admitted(folder)
    for address in ("/", f"/t/{project.key}/hide", "/static/studio.css", "/nothing", f"/t/{project.key}/job"):
        headers = browser.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    page = browser.get(f"/t/{project.key}/hide").text
    assert not re.search(r"<script(?![^>]* src=)|style=|\son\w+=|https?://", page)  # nothing inline, nothing from afar


def test_only_files_of_the_folder_are_served(folder, project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text("a,b\n1,2\n")
    (folder / "link.csv").symlink_to(outside / "secret.csv")
    (folder / "people.censored.csv").symlink_to(outside / "secret.csv")
    (folder / ".hidden.csv").write_text("a,b\n1,2\n")
    assert [found.name for found in projects(folder)] == ["people.csv"]
    browser = admitted(folder)
    linked = Project(folder, "link.csv").key
    for address in (
        f"/t/{linked}/hide", "/t/..%2f..%2fetc/hide", "/static/..%2fapp.py", "/static/../app.py",
        f"/t/{project.key}/file/..%2fpeople.csv", f"/t/{project.key}/file/people.csv", f"/t/{project.key}/file/release",
    ):  # fmt: skip
        answer = browser.get(address)
        assert answer.status_code in (400, 404)
        assert "import" not in answer.text
    (folder / ".fairveil-studio").symlink_to(outside)
    assert post(browser, f"/t/{project.key}/hide", sensitive="sex").status_code == 400
    assert sorted(path.name for path in outside.iterdir()) == ["secret.csv"]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "empty"), (b"\x1f\x8b\x08\x00rest", "gzip"), (b"a,a\n1,2\n", "more than once"), (b"PAR1garbage", "")],
)
def test_a_bad_file_is_one_message(folder, content, told):
    (folder / "bad.csv").write_bytes(content)
    answer = admitted(folder).get(f"/t/{Project(folder, 'bad.csv').key}/hide")
    assert answer.status_code in (200, 400)
    assert "Traceback" not in answer.text
    assert told in answer.text


def test_names_from_the_data_are_text(folder, at_once):
    name = "<script>alert(1)</script>"
    frame, s, _ = people(300)
    frame.rename(columns={"town": name}).assign(sex=s["sex"]).to_csv(folder / "odd.csv", index=False)
    odd = Project(folder, "odd.csv")
    browser = admitted(folder)
    assert name not in browser.get(f"/t/{odd.key}/hide").text
    assert "&lt;script&gt;alert" in browser.get(f"/t/{odd.key}/hide").text
    assert post(browser, f"/t/{odd.key}/hide", sensitive=["sex", name]).status_code == 303
    page = browser.get(f"/t/{odd.key}/columns").text
    assert name not in page
    assert "&lt;script&gt;alert" in page


def test_a_form_that_is_too_large_is_refused(folder, project):
    answer = admitted(folder).post(f"/t/{project.key}/hide", content=b"a" * 2**21, headers={"origin": HERE})
    assert answer.status_code == 413


def test_from_a_table_to_a_report(folder, project, at_once, capfd, monkeypatch):
    """The whole path by forms, with what each page shows; the schema is the command line's."""
    from fairveil.auditing.result import LIMITS, AuditResult
    from fairveil.workflows import read_schema

    browser = admitted(folder, "people.csv")
    here = f"/t/{project.key}"
    assert browser.get("/").headers["location"] == f"{here}/hide"
    assert post(browser, f"{here}/hide").status_code == 400  # nothing to hide
    post(browser, f"{here}/hide", sensitive=["sex"], targets=["hired"])
    page = browser.get(f"{here}/columns").text
    assert page.count("<select") == 6
    assert "fairveil inspect people.csv -s sex -o people.schema.yaml" in page
    roles = ["encode", "", "encode", "drop", "sensitive", "encode"]
    assert "undecided" in post(browser, f"{here}/columns", role=roles).headers["location"]
    roles[1] = "encode"
    assert post(browser, f"{here}/columns", role=roles).headers["location"] == f"{here}/learn"
    schema = read_schema(project.schema)
    assert [column.role for column in schema.columns] == roles
    assert "skill" in {column.name for column in schema.columns if column.kind == "integer"}
    post(browser, f"{here}/columns", role=roles, coded=["2"])  # skill is a label
    post(browser, f"{here}/columns", role=roles, coded=["2"])
    assert read_schema(project.schema)["skill"].kind == "categorical"
    assert post(browser, f"{here}/learn", budgets="1, two", speed="trial").status_code == 400
    assert post(browser, f"{here}/learn", budgets="0.001, 8", speed="trial").headers["location"] == f"{here}/choose"
    page = browser.get(f"{here}/choose").text
    assert "Recommended: 8" in page
    assert "This budget is not met." in page
    assert page.count('class="chart"') == 3
    preview = browser.get(f"{here}/preview/2").text
    assert "Example rows" in preview
    assert "role" in preview
    assert browser.get(f"{here}/preview/9").status_code == 400
    assert post(browser, f"{here}/choose", number="1").status_code == 400  # not met
    post(browser, f"{here}/choose", number="2")
    page = browser.get(f"{here}/report").text
    assert "The strongest of" in page, jobs.state_of(project)
    found = AuditResult.from_json(project.audit).exceeded(**LIMITS)  # after fifteen steps, usually something
    assert ("exceeds the default limits" in page) == bool(found)
    with monkeypatch.context() as patch:
        patch.setattr(AuditResult, "exceeded", lambda self, **limits: ["The AUC is too large."])
        page = browser.get(f"{here}/report").text
    assert "exceeds the default limits" in page
    assert "The AUC is too large." in page
    assert "sex" not in pd.read_csv(project.release).columns
    assert len(pd.read_csv(project.release)) == 1200
    for what in ("release", "card", "card-json", "report", "audit", "schema", "frontier"):
        answer = browser.get(f"{here}/file/{what}?save=1")
        assert answer.status_code == 200
        assert "attachment" in answer.headers["content-disposition"]
    report = browser.get(f"{here}/file/report")
    assert "sandbox" in report.headers["content-security-policy"]
    assert "script" not in report.headers["content-security-policy"]
    policy = browser.get(f"{here}/file/frontier").headers["content-security-policy"]
    assert "sandbox allow-scripts;" in policy
    assert policy.count("'none'") == 2
    assert re.search(r"script-src 'sha256-[^']+'; ", policy)  # the slider's script and no other
    post(browser, f"{here}/choose", number="2")  # the same rows again
    assert "released with this veil before" in browser.get(f"{here}/report").text
    assert browser.get("/").headers["location"] in (f"{here}/report", f"{here}/choose")
    said = capfd.readouterr()
    assert not said.out + said.err  # nothing of the data in logs


def test_a_job_can_be_cancelled_killed_and_resumed(folder, project):
    browser = admitted(folder)
    here = f"/t/{project.key}"
    assert post(browser, f"{here}/resume").status_code == 400
    post(browser, f"{here}/hide", sensitive="sex")
    assert jobs.state_of(project).running
    assert post(browser, f"{here}/hide", sensitive="sex").status_code == 400  # a second tab
    _until(project, lambda found: found.status.get("pid"))
    assert post(browser, f"{here}/cancel").status_code == 303
    assert _until(project, lambda found: not found.running).state == "cancelled"
    assert "Resume" in browser.get(f"{here}/columns").text
    post(browser, f"{here}/resume")
    os.kill(_until(project, lambda found: found.status.get("pid")).status["pid"], signal.SIGKILL)
    assert _until(project, lambda found: not found.running).state == "interrupted"
    restarted = admitted(folder)  # a new server knows the job from the folder
    assert "interrupted" in restarted.get(f"{here}/columns").text
    post(restarted, f"{here}/resume")
    assert _until(project, lambda found: not found.running).state == "done"
    assert "select" in restarted.get(f"{here}/columns").text
    state = project.state.stat().st_mode & 0o777
    assert state == 0o700


def _until(project, condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition(found := jobs.state_of(project)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_a_failed_job_says_why(folder, project, at_once):
    browser = admitted(folder)
    here = f"/t/{project.key}"
    post(browser, f"{here}/hide", sensitive="sex")
    (folder / "people.csv").write_text("role,sex\n")
    post(browser, f"{here}/learn", budgets="1", speed="trial")
    page = browser.get(f"{here}/choose").text
    assert "Learning failed." in page
    assert "people.csv" in page


def test_the_commands_shown_are_commands(project):
    from fairveil.studio import commands

    shown = [
        commands.inspecting(project, ["sex", "home town"]),
        commands.learning(project, [0.5, 1.0], ["hired"], 300),
        commands.releasing(project, "sex-1.veil", ["sex"], ["hired"]),
    ]
    verbs = typer.main.get_command(command_line).commands
    for same in shown:
        compile(same.python, "shown", "exec")
        for line in same.shell.splitlines():
            name, verb, *arguments = shlex.split(line)
            assert name == "fairveil"
            verbs[verb].make_context(verb, list(arguments))  # raises for an unknown option


def test_without_its_packages_the_studio_is_one_line(tmp_path):
    code = "import sys; sys.modules['starlette'] = None; from fairveil.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "studio", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "fairveil: The studio needs two more packages: pip install 'fairveil[studio]'.\n"


def test_headers_that_contradict_each_other_are_refused(folder, project):
    """A second host or origin, and lengths that are not numbers: a proxy and the server may read different ones."""
    browser = admitted(folder)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    right = [("host", f"127.0.0.1:{PORT}"), ("cookie", cookie)]
    address = f"/t/{project.key}/hide"
    assert _raw_status(browser, address, right) == 200
    assert _raw_status(browser, address, [*right, ("host", "evil.example")]) == 403
    assert _raw_status(browser, address, [("host", "evil.example"), *right]) == 403
    assert _raw_status(browser, address, [*right, ("origin", HERE), ("origin", "null")]) == 403
    for length in ("-1", "many", "9" * 5000, "\u00b2"):
        assert _raw_status(browser, address, [*right, ("content-length", length)]) == 413


def _raw_status(browser, address, headers):
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": address, "raw_path": address.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    asyncio.run(browser.app(scope, receive, send))
    return sent[0]["status"]


def test_a_second_tab_changes_nothing_while_a_job_runs(folder, project, monkeypatch):
    """The frontier and the choices on disk belong to the running job."""
    project.remember("chosen", {"sensitive": ["sex"], "targets": []})
    project.remember("inspection", {"columns": [], "sensitive": ["sex"], "rows": 1, "file": "people.csv"})
    project.veils.mkdir()
    (project.veils / "frontier.json").write_text("{}")
    monkeypatch.setattr(jobs, "_alive", lambda project: True)
    browser, here = admitted(folder), f"/t/{project.key}"
    assert post(browser, f"{here}/learn", budgets="1", speed="trial").status_code == 400
    assert post(browser, f"{here}/hide", sensitive="hired").status_code == 400
    assert post(browser, f"{here}/columns", role=[]).status_code == 400
    assert (project.veils / "frontier.json").is_file()
    assert project.recall("chosen") == {"sensitive": ["sex"], "targets": []}


def test_previews_read_a_large_table_once(folder, monkeypatch):
    from fairveil.workflows import open_table, preview

    read = []
    whole = preview.sample_rows
    monkeypatch.setattr(preview, "sample_rows", lambda *given, **named: read.append(1) or whole(*given, **named))
    file = folder / "people.csv"
    for _ in range(3):
        preview._sampled(open_table(file), ("role", "skill"), (), 50)
    assert len(read) == 1
    file.write_text(file.read_text() + "wife,x,3,170.0,f,1\n")  # changed: read again
    assert preview._sampled(open_table(file), ("role", "skill"), (), 5000).num_rows == 1201
    assert len(read) == 2
