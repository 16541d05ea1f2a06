"""What the benchmarks share: how their parts are called, the budgets of a frontier, and which rows judge."""

import argparse
from collections.abc import Callable, Mapping

import numpy as np

#: A whole frontier of UCI Adult, case I, from hardly changed to nothing left of sex.
EIGHT = (0.7, 0.9, 1.0, 1.05, 1.1, 1.4, 1.8, 2.3)


def fit_and_judge(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Four fifths of the training rows to fit on, and the others to judge by: test rows are not touched."""
    order = np.random.default_rng(0).permutation(rows)
    return np.sort(order[rows // 5 :]), np.sort(order[: rows // 5])


def run_parts(description: str | None, parts: Mapping[str, Callable[[], object]]) -> None:
    """Run the parts named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)}; all of them by default")
    for name in parser.parse_args().parts or list(parts):
        parts[name]()
