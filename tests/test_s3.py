"""From and to a server that speaks S3: what is visible when, and where credentials appear (nowhere)."""

import importlib.util
import json
import logging
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pandas as pd
import pyarrow.fs as pafs
import pytest

from fairveil._utils.stores import StoreError, locate
from fairveil.workflows import Options, release_file
from fairveil.workflows.many_files import MANIFEST, digest_of, open_tables
from fairveil.workflows.release import job as asking
from fairveil.workflows.release.ledger import Ledger
from releases import table

pytestmark = pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="moto[server] is not installed")
KEY, SECRET = "AKIAFAIRVEILTEST", "hushhushhushhushhush"
QUIET = Options(show_progress=False, workers=2)


@pytest.fixture(scope="module")
def server():
    """A server of its own process, with two buckets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def store(server, monkeypatch):
    """Its file system; the credentials are in the environment, where users have them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server}")
    found = pafs.S3FileSystem(endpoint_override=server, scheme="http", allow_bucket_creation=True)
    for bucket in ("survey", "public"):
        found.create_dir(bucket)
    return found


def put(store, path, content):
    with store.open_output_stream(path) as stream:
        stream.write(content)


def test_a_release_from_a_bucket_to_a_bucket(place, store, monkeypatch, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(asking, "_CELL_BYTES", 2**17)
    for number, start in enumerate(range(0, 900, 300)):
        table().iloc[start : start + 300].to_parquet(place / "part.parquet", index=False)
        put(store, f"survey/people/year={number}.d/part.parquet", (place / "part.parquet").read_bytes())
        put(store, f"survey/plain/{number}.parquet", (place / "part.parquet").read_bytes())
    assert open_tables("s3://survey/people").names[-1] == "year"
    card = release_file("s3://survey/plain/*.parquet", place / "sex.veil", "s3://public/out", QUIET)
    assert card["release"]["rows"] == 900
    out = locate("s3://public/out")
    assert out.child(MANIFEST).is_file()
    names = [file["name"] for file in json.loads(out.child(MANIFEST).read())["files"]]
    assert len(names) > 2
    frames = [pd.read_parquet(store.open_input_file(f"public/out/{name}")) for name in names]
    assert sum(map(len, frames)) == 900
    assert Ledger.of(place / "sex.veil").find(digest_of(open_tables("s3://public/out"))) is not None
    again = release_file("s3://survey/plain/*.parquet", place / "sex.veil", "s3://public/out",
                         replace(QUIET, resume=True))  # fmt: skip
    assert again["release"]["sha256"] == card["release"]["sha256"]
    said = "".join(capfd.readouterr()) + caplog.text + json.dumps(card)
    written = b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
    for credential in (KEY, SECRET):
        assert credential not in said
        assert credential.encode() not in written


def test_a_bucket_that_is_not_there(place, store):
    with pytest.raises((StoreError, ValueError)) as refused:
        release_file("s3://nowhere/people.csv", place / "sex.veil", place / "out", QUIET)
    assert SECRET not in str(refused.value)
    assert KEY not in str(refused.value)


def test_an_upload_that_is_killed_leaves_nothing(store, server):
    """A process dies in the middle of an upload of several parts."""
    code = f"""
import os, pyarrow.fs as pafs
store = pafs.S3FileSystem(endpoint_override="{server}", scheme="http")
stream = store.open_output_stream("public/half.parquet")
stream.write(b"x" * 30_000_000)
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert not locate("s3://public/half.parquet").is_file()
    locate("s3://public/whole").write(b"x" * 30_000_000)  # the control
    assert locate("s3://public/whole").size() == 30_000_000
