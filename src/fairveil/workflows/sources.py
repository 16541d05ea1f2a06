"""Open an input of fit, release and audit by its path: a table on disk, or a folder of images."""

from pathlib import Path

from fairveil._utils.errors import InputError
from fairveil._utils.stores import is_url, locate
from fairveil.data.images import has_images
from fairveil.workflows.images import ImageSource
from fairveil.workflows.many_files import holds_tables, is_pattern
from fairveil.workflows.protocol import Source
from fairveil.workflows.tables import TableSource


def open_source(path: str | Path, labels: str | Path | None = None) -> Source:
    """A table in one or many files, or a folder of images; labels are for images."""
    if is_url(path) or is_pattern(path):
        return TableSource.at(path)
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.is_dir() and (labels is not None or not holds_tables(locate(path)) or has_images(path)):
        return ImageSource(path, None if labels is None else Path(labels))
    return TableSource.at(path)
