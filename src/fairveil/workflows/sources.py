"""Open an input of fit, release and audit by its path: a table on disk, or a folder of images."""

from pathlib import Path

from fairveil._utils.errors import InputError
from fairveil.workflows.images import ImageSource
from fairveil.workflows.protocol import Source
from fairveil.workflows.tables import TableSource


def open_source(path: str | Path, labels: str | Path | None = None) -> Source:
    """A table, or a folder of images; labels are for images."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.is_dir():
        return ImageSource(path, None if labels is None else Path(labels))
    return TableSource.at(path)
