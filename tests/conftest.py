"""Fixtures that several test files share."""

import pytest
import torch

from helpers import people

torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory, monkeypatch):
    """Where ledgers are noted: a folder of each test's own, so that copies of a veil do not meet."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("FAIRVEIL_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def small():
    """(X, S, y) of 600 people."""
    return people()
