"""Self-contained HTML reports, and number formatting, from plain values."""

from fairveil.report.page import absent, shown_interval, shown_number, write_page

__all__ = ["absent", "shown_interval", "shown_number", "write_page"]
