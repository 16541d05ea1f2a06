"""What several attacks share."""

from contextlib import contextmanager

import pytest

from fairveil.workflows.release import job as asking
from fairveil.workflows.release import tables as streaming


@pytest.fixture
def interruption(monkeypatch):
    """Releases in parts of 100 rows; within `interruption(n)`, one is stopped before its part n."""
    monkeypatch.setattr(asking, "_MOST_BATCH", 100)
    monkeypatch.setattr(asking, "_LEAST_BATCH", 100)
    draw = streaming._draw_part

    @contextmanager
    def stopped(part):
        def stop(*arguments):
            if arguments[3] == part:
                raise KeyboardInterrupt
            draw(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(streaming, "_draw_part", stop)
            with pytest.raises(KeyboardInterrupt):
                yield

    return stopped
