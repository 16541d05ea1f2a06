"""What each step of the studio would be on the command line and in Python."""

import shlex
from dataclasses import dataclass

from fairveil.studio.project import Project


@dataclass(frozen=True)
class Same:
    """The same step elsewhere."""

    shell: str
    python: str


def inspecting(project: Project, sensitive: list[str]) -> Same:
    """Inspect."""
    shell = ["fairveil", "inspect", project.name, *_each("-s", sensitive), "-o", project.schema.name]
    return Same(
        shlex.join(shell),
        "from fairveil import workflows\n\n"
        f"found = workflows.inspect_file(workflows.open_table({project.name!r}), {sensitive!r})\n"
        f"open({project.schema.name!r}, 'w').write(found.to_yaml())",
    )


def learning(project: Project, budgets: list[float], targets: list[str], steps: int | None) -> Same:
    """Learn a frontier."""
    told = ",".join(f"{budget:g}" for budget in budgets)
    shell = ["fairveil", "frontier", project.name, "--schema", project.schema.name, *_each("--target", targets),
             "--budgets", told, *([] if steps is None else ["--steps", str(steps)]),
             "-o", project.veils.name]  # fmt: skip
    more = "" if steps is None else f", steps={steps}"
    return Same(
        shlex.join(shell),
        "from pathlib import Path\nfrom fairveil import workflows\n\n"
        f"recipe = workflows.Recipe(schema=Path({project.schema.name!r}){more})\n"
        f"points = workflows.fit_frontier({project.name!r}, {project.veils.name!r}, {budgets!r}, recipe, {targets!r})",
    )


def releasing(project: Project, veil: str, hides: list[str], targets: list[str]) -> Same:
    """Release and audit."""
    path = f"{project.veils.name}/{veil}"
    release = ["fairveil", "release", project.name, "--veil", path, "-o", project.release.name]
    audit = ["fairveil", "audit", project.release.name, "--original", project.name, *_each("-s", hides),
             *_each("--target", targets), "--veil", path, "--report", project.report.name, "--save",
             project.audit.name]  # fmt: skip
    return Same(
        f"{shlex.join(release)}\n{shlex.join(audit)}\n{shlex.join(['fairveil', 'card', project.release.name])}",
        "from fairveil import workflows\n\n"
        f"workflows.release_file({project.name!r}, {path!r}, {project.release.name!r}, workflows.Options())\n"
        f"result = workflows.audit_file({project.release.name!r}, {project.name!r}, {hides!r}, {targets!r}, "
        f"veil={path!r})\nresult.to_html({project.report.name!r})",
    )


def _each(flag: str, names: list[str]) -> list[str]:
    return [part for name in names for part in (flag, name)]
