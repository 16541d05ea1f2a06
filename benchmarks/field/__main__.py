"""The command line of the comparison; see `field/__init__.py`."""

import argparse
import time
from itertools import product
from pathlib import Path

import field
from field import data, store
from field.methods import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(description=field.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "collect", "page", "list"])
    parser.add_argument("--table", nargs="+", default=[], help="names in benchmarks/field/tables, or YAML files")
    parser.add_argument("--method", nargs="+", default=[], help="any part of a method's name; `ours` for our own")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="at most this many rows of each table")
    parser.add_argument("--tries", type=int, default=200, help="configurations of the attackers' search")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of processor time of a run")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="start no run after this many seconds")
    parser.add_argument("--battery", action="store_true", help="also the audit's quick battery")
    parser.add_argument("--results", type=Path, default=Path("results/field"), help="where results are stored")
    given = parser.parse_args()
    {"run": run_all, "collect": collect, "page": page, "list": show}[given.part](given)


def run_all(given: argparse.Namespace) -> None:
    from field.run import run

    settings = {"rows": given.rows, "tries": given.tries, "limit": given.limit, "battery": given.battery}
    begin = time.monotonic()
    for seed, table, method in product(range(given.seeds), given.table or data.names(), chosen(given.method)):
        start = time.monotonic()
        if start - begin > given.stop_after:
            break
        found = run(table, method, seed, given.results, settings)
        told = found["failure"] or f"{len(found['points'])} values"
        print(f"{table}, {method}, seed {seed}: {told}, {time.monotonic() - start:.0f} s", flush=True)


def chosen(parts: list[str]) -> list[str]:
    """Methods whose name contains one of these texts, or that are ours; all without any."""
    wanted = [part.lower() for part in parts]
    found = [
        name
        for name, method in METHODS.items()
        if not wanted or any(part in name.lower() or (part == "ours" and method.ours) for part in wanted)
    ]
    if not found:
        raise SystemExit(f"No method is called like this. Known: {', '.join(METHODS)}.")
    return found


def collect(given: argparse.Namespace) -> None:
    print(f"{store.collect(store.every(given.results))} results in {store.COLLECTED}")


def page(given: argparse.Namespace) -> None:
    from field.page import write_page

    write_page(store.COLLECTED, Path("docs"))


def show(given: argparse.Namespace) -> None:
    print("tables:", ", ".join(data.names()))
    for name, method in METHODS.items():
        print(f"{name}: {method.source}", "" if method.problem(2) is None else f"({method.problem(2)})")


if __name__ == "__main__":
    main()
