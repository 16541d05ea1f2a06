"""Fixtures that several test files share."""

import pytest
import torch

from helpers import people

torch.set_num_threads(2)


@pytest.fixture(scope="session")
def small():
    """(X, S, y) of 600 people."""
    return people()
