"""Start-up times, and the studio with a large table (`python benchmarks/studio.py [imports|large]`).

`imports`: seconds of `import fairveil`, `fairveil --help`, `fairveil.FairEncoder` and the studio's first page.
`large`: a table of many columns and rows; seconds of each page, the slowest answer while it is inspected, peak memory
of server and worker. With playwright and chromium, the first paint too.
"""

import argparse
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

REPEATS = 5


def seconds_of(*command: str) -> tuple[float, float]:
    """The shortest wall time and CPU time of a command, in seconds."""
    found = []
    for _ in range(REPEATS):
        start, before = time.perf_counter(), os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        found.append((time.perf_counter() - start, used))
    return min(wall for wall, _ in found), min(cpu for _, cpu in found)


def imports() -> None:
    """Print start-up times, each without the time that Python itself takes."""
    base = seconds_of(sys.executable, "-c", "pass")
    for name, code in {
        "import fairveil": ["-c", "import fairveil"],
        "import torch": ["-c", "import torch"],
        "fairveil.FairEncoder": ["-c", "import fairveil; fairveil.FairEncoder"],
        "fairveil --help": ["-m", "fairveil", "--help"],
    }.items():
        wall, cpu = seconds_of(sys.executable, *code)
        print(f"{name:22} {wall - base[0]:6.3f} s, CPU {cpu - base[1]:6.3f} s", flush=True)


class Client:
    """A browser of one studio, without scripts."""

    def __init__(self, address: str) -> None:
        self.host = address.split("/")[2]
        self.cookie = ""
        _, headers, _ = self.request("GET", address.split(self.host)[1])
        self.cookie = headers["set-cookie"].partition(";")[0]

    def request(self, method: str, path: str, form: list[tuple[str, str]] | None = None) -> tuple[int, dict, str]:
        """Status, headers and text."""
        link = http.client.HTTPConnection(self.host, timeout=600)
        headers = {"cookie": self.cookie, "origin": f"http://{self.host}"}
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        link.request(method, path, None if form is None else urlencode(form), headers)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def timed(self, name: str, path: str) -> str:
        """A page, with its seconds printed."""
        start = time.perf_counter()
        status, _, text = self.request("GET", path)
        print(f"{name:30} {time.perf_counter() - start:7.2f} s, {len(text) / 1e6:5.2f} MB, {status}", flush=True)
        return text


def table(path: Path, rows: int, columns: int) -> None:
    """Numbers, categories and integers in turn, some of which tell `sex`; written in pieces."""
    generator = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 100_000):
        n = min(100_000, rows - start)
        sex = generator.integers(0, 2, n)
        parts: dict[str, object] = {"sex": np.where(sex == 1, "m", "f")}
        for i in range(columns - 1):
            tells = sex * (i % 10 == 0)
            parts[f"c{i}"] = (
                np.round(generator.normal(tells, 1.0, n), 2) if i % 3 == 0
                else generator.integers(0, 40, n) + 5 * tells if i % 3 == 1
                else np.array(["red", "green", "blue", "grey"])[(generator.integers(0, 4, n) + tells) % 4]
            )  # fmt: skip
        piece = pa.table(parts)
        if writer is None:
            writer = (pc.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter)(path, piece.schema)
        writer.write_table(piece)
    assert writer is not None
    writer.close()


def peak(pid: int) -> float:
    """Peak resident memory of a process, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0  # a process that has just ended has none


def large(rows: int, columns: int, kind: str) -> None:
    """Inspect a large table in the studio."""
    folder = Path(tempfile.mkdtemp())
    file = folder / f"large.{kind}"
    table(file, rows, columns)
    print(f"{rows:,} rows, {columns} columns, {file.stat().st_size / 1e6:,.0f} MB as {kind}", flush=True)
    began = time.perf_counter()
    command = [sys.executable, "-m", "fairveil", "studio", file.name, "--no-browser"]
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = next(word for word in server.stderr.readline().split() if word.startswith("http"))
        print(f"{'link printed':30} {time.perf_counter() - began:7.2f} s after the start", flush=True)
        client = _painted(address, began) or Client(address)
        here = client.request("GET", "/")[1]["location"].rpartition("/")[0]
        client.timed("what to hide", f"{here}/hide")
        client.request("POST", f"{here}/hide", [("sensitive", "sex"), ("targets", "c0")])
        _watched(client, here, server.pid)
        page = client.timed("columns", f"{here}/columns")
        roles = [("role", role) for role in re.findall(r'<option value="(\w*)" selected', page)]
        start = time.perf_counter()
        status, headers, _ = client.request("POST", f"{here}/columns", roles)
        print(f"{'save the roles':30} {time.perf_counter() - start:7.2f} s, {status} {headers['location'][-6:]}")
        print(f"peak memory of the server: {peak(server.pid):,.0f} MB")
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
        shutil.rmtree(folder)


def _watched(client: Client, here: str, server: int) -> None:
    """Ask for progress until the inspection is done; the slowest answer and the peak memory of its process."""
    start, slowest, most, state = time.perf_counter(), 0.0, 0.0, "running"
    while state == "running":
        before = time.perf_counter()
        text = client.request("GET", f"{here}/job")[2]
        slowest = max(slowest, time.perf_counter() - before)
        state = re.search(r'"state":"(\w+)"', text)[1]
        most = max([most, *map(peak, _children(server))])
        time.sleep(0.1)
    print(f"{'inspection':30} {time.perf_counter() - start:7.2f} s, {state}; slowest answer meanwhile {slowest:.3f} s; "
          f"peak memory of its process {most:,.0f} MB", flush=True)  # fmt: skip


def _children(pid: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in found for child in children if Path(f"/proc/{child}/status").exists()]


def _painted(address: str, began: float) -> Client | None:
    """The first paint in chromium, if there is one; the session goes on with its cookie."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if shutil.which("chromium") is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context()
        page = context.new_page()
        waited = time.perf_counter() - began
        page.goto(address)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        print(f"{'first paint':30} {paint / 1000:7.2f} s after the link was opened ({waited:.1f} s after the start)")
        cookie = context.cookies()[0]
        browser.close()
    client = Client.__new__(Client)
    client.host, client.cookie = address.split("/")[2], f"{cookie['name']}={cookie['value']}"
    return client


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["imports", "large"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--kind", choices=["csv", "parquet"], default="csv")
    chosen = parser.parse_args()
    if chosen.part in (None, "imports"):
        imports()
    if chosen.part in (None, "large"):
        large(chosen.rows, chosen.columns, chosen.kind)
