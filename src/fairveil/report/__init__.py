"""Results as one self-contained HTML page. Knows plain values only."""

from fairveil.report.page import write_page

__all__ = ["write_page"]
