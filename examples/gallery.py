"""Render the numbered examples as pages of the documentation, with what they print and draw (`make gallery`).

Each script is run cell by cell. What a cell prints is shown below it, and so is the `picture` it assigns (matplotlib
axes or a figure). The pages are stored in docs/examples, so that `make docs` does not train.
"""

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "examples"
SHORT = {"FAIRVEIL_STEPS": "150", "FAIRVEIL_ROWS": "3000"}


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a script in percent format: "markdown" or "code", and the content."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            found.append(("markdown", "\n".join(line.removeprefix("#").strip() for line in body.splitlines()).strip()))
        else:
            found.append(("code", body.strip()))
    return found


def render(script: Path) -> float:
    """Run one script and write its page; the seconds it took."""
    space: dict[str, Any] = {"__name__": "__main__"}
    parts: list[str] = []
    start = time.monotonic()
    for number, (kind, text) in enumerate(cells(script.read_text("utf-8"))):
        if kind == "markdown":
            parts.append(text)
            continue
        space.pop("picture", None)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.parse(text), script.name, "exec"), space)
        parts.append(f"```python\n{text}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        if "picture" in space:
            name = f"{script.stem}-{number}.png"
            figure_of(space["picture"]).savefig(PAGES / name, dpi=80)
            parts.append(f"![What the cell above draws]({name})")
    settings = " ".join(f"{name}={value}" for name, value in SHORT.items())
    note = f"*`examples/{script.name}`, run with `{settings}`: a short run on few rows.*"
    (PAGES / f"{script.stem}.md").write_text("\n\n".join([parts[0], note, *parts[1:]]) + "\n", "utf-8")
    return time.monotonic() - start


def figure_of(picture: Any) -> Any:
    """The figure of matplotlib axes, of an array of them, or the figure itself."""
    first = picture.ravel()[0] if hasattr(picture, "ravel") else picture
    return getattr(first, "figure", None) or first


def main() -> None:
    """Render all scripts, or those whose names begin with the arguments."""
    os.environ |= SHORT
    warnings.simplefilter("ignore")
    PAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for script in sorted(HERE.glob("[0-9]*.py")):
            if len(sys.argv) == 1 or script.name.startswith(tuple(sys.argv[1:])):
                print(f"{script.stem}: {render(script):.0f} s", flush=True)


if __name__ == "__main__":
    main()
