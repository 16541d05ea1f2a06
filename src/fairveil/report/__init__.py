"""Results as one self-contained HTML page, and how their numbers are written. Knows plain values only."""

from fairveil.report.page import absent, shown_interval, shown_number, write_page

__all__ = ["absent", "shown_interval", "shown_number", "write_page"]
