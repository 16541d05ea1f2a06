"""A local web application for curators: from a table to a release and its report, in a browser.

It has no logic of its own: every step calls the same functions of `fairveil.workflows` as the command line.
"""

from fairveil.studio.server import serve

__all__ = ["serve"]
