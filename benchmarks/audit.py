"""Whether the audit can be believed: power, false alarms, known truths, coverage of certificates. `make audit`.

python benchmarks/audit.py power      planted leaks of five points at 10,000 rows: how often each is found (100 runs)
python benchmarks/audit.py leaks      leaks of many kinds (leaks.py), at five points and at 100 %: ten runs each
python benchmarks/audit.py more       the same for leaks for which no feature was designed
python benchmarks/audit.py alarms     tables that say nothing of S: how often something is found (200 runs)
python benchmarks/audit.py truth      Gaussian mixtures: the best attacker's interval against the exact MAP accuracy
python benchmarks/audit.py coverage   certificates at 95 %: how often they cover the true total variation (1,000 runs)
python benchmarks/audit.py certified  UCI Adult: codes for new rows, certified on test rows; task unknown and known
python benchmarks/audit.py demand     certificates on demand: 200 fits against the true total variation
python benchmarks/audit.py presence   presence and absence: UCI Adult at budget 1.2, controls, coverage (300 runs), time
python benchmarks/audit.py profile    UCI Adult, quick: where the time of an audit goes, and its peak memory
"""

import os
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd

import fairveil as fv
import leaks
from common import run_parts
from fairveil.auditing import probe
from fairveil.auditing.attack import attack_all
from fairveil.auditing.attackers import battery
from fairveil.auditing.certificate import contraction
from fairveil.auditing.facts import Facts, Matches
from fairveil.auditing.inputs import make_target, read_clusters, read_release, read_targets
from fairveil.auditing.presence import known_people, presence_rows
from fairveil.auditing.protocol import Evidence, Terms, split_rows
from fairveil.auditing.variation import asymptotic_bound, binomial_bound, hoeffding_bound, interval_bound
from fairveil.datasets import Split, load_adult
from fairveil.estimators.certificates import Allowance
from fairveil.information import information_bracket
from fairveil.metrics import proportion
from fairveil.theory import gaussian as theory

RUNS, ROWS = 100, 10_000
LEAKS = ("row order", "low digits", "none", "interaction", "missingness", "linear")


def planted(leak: str, generator: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of noise in which the best guess of a balanced S is right in 55 %, and S."""
    s = generator.integers(0, 2, rows)
    told = np.where(generator.random(rows) < 0.55, s, 1 - s)  # right in 55 %
    x = generator.normal(size=(rows, 6))
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(6)])
    frame["colour"] = generator.choice(["red", "green", "blue"], rows)
    if leak == "linear":
        # Phi(0.2513 / 2) = 0.55. Rounded, because the last bits of a sum show what was added: a leak of its own.
        frame["x0"] = (frame["x0"] + 0.2513 * s).round(4)
    elif leak == "interaction":
        first = generator.integers(0, 2, rows)
        frame["left"], frame["right"] = first, first ^ told
    elif leak == "low digits":
        thousandths = np.round(1000 * frame["x0"]).astype(int)
        frame["x0"] = (thousandths - (thousandths % 2) + told) / 1000
    elif leak == "row order":
        order = np.argsort(told, kind="stable")
        frame, s = frame.iloc[order].reset_index(drop=True), s[order]
    elif leak == "missingness":
        frame.loc[generator.random(rows) < np.where(s == 1, 0.25, 0.15), "x0"] = np.nan  # 0.5 + (0.25 - 0.15) / 2
    return frame, s


def attacked(frame: pd.DataFrame, s: np.ndarray, seed: int, clusters: np.ndarray | None = None) -> dict:
    """The attacks of a quick audit on one column, without its other stages."""
    released = read_release(frame, "released")
    target = make_target("S", read_targets(s, "S")["S"])
    parts = split_rows(None, target.values, len(frame), 10**6, seed, read_clusters(clusters, len(frame)))
    return attack_all(target, battery("quick"), Evidence.of(released, parts), Terms(seed=seed)).summary


def is_found(leak: str, run: int) -> bool:
    return bool(attacked(*planted(leak, np.random.default_rng(run)), run)["found"])


def power() -> None:
    rows = []
    # Runs are many and small: one thread each, as many at once as there are cores.
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for leak in LEAKS:
            start = time.monotonic()
            found = list(pool.map(is_found, [leak] * RUNS, range(RUNS)))
            share = proportion(sum(found), RUNS)
            rows.append({"leak": leak, "found": f"{share:.2f}", "seconds a run": (time.monotonic() - start) / RUNS})
            print(rows[-1], flush=True)
    print(f"\n## Leaks of 5 points at {ROWS:,} rows, {RUNS} runs each; 'none' must be found in at most 5 %\n")
    print(pd.DataFrame(rows).round(2).to_string(index=False), flush=True)


def leak_is_found(name: str, run: int, points: float) -> tuple[bool, float]:
    found = attacked(*leaks.planted(name, run, points, ROWS), run)
    return bool(found["found"]), float(found["accuracy"])


def more_leaks() -> None:
    listed_leaks(names=tuple(leaks.MORE))


def listed_leaks(runs: int = 10, names: tuple[str, ...] = tuple(leaks.LEAKS)) -> None:
    rows = []
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for name in names:
            row: dict = {"leak": name}
            for points in (0.05, 0.5):
                results = list(pool.map(leak_is_found, [name] * runs, range(runs), [points] * runs))
                row |= {f"found at {100 * points:g} points": sum(found for found, _ in results),
                        f"accuracy at {100 * points:g}": np.mean([accuracy for _, accuracy in results])}  # fmt: skip
            rows.append(row)
            print(rows[-1], flush=True)
    print(f"\n## Leaks at {ROWS:,} rows: found in how many of {runs} runs\n")
    print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)


def alarm(name: str, run: int) -> bool:
    return bool(attacked(*leaks.independent(name, run, 4000)[:2], run, leaks.independent(name, run, 4000)[2])["found"])


def alarms(runs: int = 40) -> None:
    rows = []
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for name in leaks.INDEPENDENT:
            found = sum(pool.map(alarm, [name] * runs, range(runs)))
            rows.append({"table": name, "runs": runs, "found": found})
            print(rows[-1], flush=True)
    total = sum(row["found"] for row in rows) / (runs * len(rows))
    print(f"\n## False alarms: {100 * total:.1f} % of {runs * len(rows)} runs\n")
    print(pd.DataFrame(rows).to_string(index=False), flush=True)


def truth() -> None:
    rows = []
    for gamma in (0.5, 1.0, 2.0, 3.0):
        for prior in (0.5, 0.75):
            generator = np.random.default_rng(int(10 * gamma))
            s = (generator.random(20_000) < prior).astype(int)
            # Half of the noise belongs to the original rows, half is the channel's. Rounded, because the last bits of
            # a sum show what was added.
            source = np.outer(2 * s - 1, np.full(4, gamma / 4)) + np.sqrt(0.5) * generator.normal(size=(20_000, 4))
            x = (source + np.sqrt(0.5) * generator.normal(size=source.shape)).round(5)
            best = attacked(pd.DataFrame(x, columns=list("abcd")), s, 0)
            exact, nats = theory.map_accuracy(gamma, prior), theory.mutual_information(gamma, prior)
            bracket = information_bracket(x[:4000], s[:4000], log_density=_half_density, source=source[:4000])
            rows.append({"separation": gamma, "P(S=1)": prior, "MAP": exact, "low": best["accuracy_low"],
                         "best attacker": best["accuracy"], "high": best["accuracy_high"],
                         "covered": best["accuracy_low"] <= exact <= best["accuracy_high"], "nats": nats,
                         "nats at least": bracket.lower.low, "nats at most": bracket.upper.high,
                         "inside": bracket.lower.low <= nats <= bracket.upper.high})  # fmt: skip
    print("\n## Gaussian mixtures: best of all attackers against the exact MAP accuracy; information in its bracket\n")
    print(pd.DataFrame(rows).round(4).to_string(index=False), flush=True)


def _half_density(x: np.ndarray, source: np.ndarray) -> np.ndarray:
    """log N(x; source, I/2), for all pairs."""
    squares = (x**2).sum(1)[:, None] + (source**2).sum(1)[None, :] - 2 * x @ source.T
    return -squares - 2 * np.log(np.pi)


def coverage(runs: int = 1000) -> None:
    rows = []
    for cells, n, m, concentration in (
        (2, 200, 100, 5.0),
        (8, 500, 300, 2.0),
        (64, 3000, 1500, 1.0),
        (400, 2000, 2000, 0.5),
    ):
        generator = np.random.default_rng(cells)
        p, q = generator.dirichlet(np.full(cells, concentration), 2)
        channel = 0.5 * np.eye(cells) + 0.5 * generator.dirichlet(np.ones(cells), cells)
        true, through = 0.5 * np.abs(p - q).sum(), 0.5 * np.abs((p - q) @ channel).sum()
        hits, widths = np.zeros(5), np.zeros(5)
        reach = contraction(channel)
        for _ in range(runs):
            a, b = generator.multinomial(n, p), generator.multinomial(m, q)
            plain = 0.5 * np.abs(a / n - b / m).sum()
            seen = 0.5 * np.abs((a / n - b / m) @ channel).sum()
            bounds = np.array([binomial_bound(plain, n, m, 0.05), interval_bound(a, b, 0.05),
                               hoeffding_bound(seen, n, m, 0.05, (reach, reach)), asymptotic_bound(a, b, 0.05),
                               plain])  # fmt: skip
            hits += bounds >= np.array([true, true, through, true, true])
            widths += bounds - np.array([true, true, through, true, true])
        names = ("binomial", "intervals", "channel", "asymptotic", "plug-in (broken)")
        for name, hit, width in zip(names, hits, widths, strict=True):
            rows.append({"bound": name, "cells": cells, "rows": f"{n} / {m}", "covered": hit / runs,
                         "true TV": through if name == "channel" else true, "mean excess": width / runs})  # fmt: skip
    print(f"\n## Certificates at 95 %, {runs} simulations each: the truth must be covered in at least 93.6 %\n")
    print(pd.DataFrame(rows).round(4).to_string(index=False), flush=True)


def demand(fits: int = 200, certified: float = 0.08) -> None:
    """Certificates on demand: how often they are issued, and how often the true total variation exceeds them."""
    issued, wrong, bounds, true = 0, 0, [], []
    for seed in range(fits):
        x, s = _demanded(12_000, seed)
        encoder = fv.FairEncoder(certified=certified, sees_sensitive=True, random_state=seed, verbose=False)
        try:
            encoder.fit(x, sensitive_features=s)
        except fv.CertificateNotMet:
            continue
        new, groups = _demanded(200_000, 10_000 + seed)
        released = encoder.transform(new, sensitive_features=groups)
        cells = released.groupby(list(released), observed=True).ngroup().to_numpy()
        shares = [np.bincount(cells[groups == g], minlength=cells.max() + 1) / (groups == g).sum() for g in (0, 1)]
        true.append(0.5 * np.abs(shares[0] - shares[1]).sum())
        bounds.append(encoder.certificate_.bound)
        issued, wrong = issued + 1, wrong + (true[-1] > certified)
    print(f"\n## certified={certified:g}: {fits} fits, {issued} certificates; the true total variation exceeds it in "
          f"{wrong}. Mean bound {np.mean(bounds):.4f}, mean true value {np.mean(true):.4f}", flush=True)  # fmt: skip


def _demanded(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table in which one column often equals S and another is shifted by it."""
    generator = np.random.default_rng(seed)
    s = generator.choice(2, rows, p=[0.6, 0.4])
    return pd.DataFrame({
        "a": (generator.normal(size=rows) + s).clip(-1.5, 2.5).round(1),
        "b": generator.choice(list("wxyz"), rows),
        "like": np.where(generator.random(rows) < 0.7, np.array(["p", "q"])[s], "p"),
    }), s  # fmt: skip


def certified(certified: float = 0.05, seeds: int = 3) -> None:
    """Codes for new rows: the number of cells from the numbers of rows alone, fitted on training rows, certified once
    on test rows.
    """
    train, test = load_adult("I")
    sizes = [[int((part.S["sex"] == group).sum()) for group in ("Female", "Male")] for part in (train, test)]
    rows = []
    for seed in range(seeds):
        for code, target_weight in (("distance", 0.0), ("shared scores", 0.0), ("score of salary", 10.0)):
            cells = Allowance(certified, [int(0.88 * count) for count in sizes[0]], sizes[1], 0.95).cells()
            weight = {"distance": 0.0, "shared scores": 30.0, "score of salary": 10.0}[code]
            balanced = fv.BalancedPartition(n_cells=cells, score_weight=weight)
            encoder = fv.FairEncoder(1e9, architecture=balanced, target_weight=target_weight, sees_sensitive=True,
                                     verbose=False, random_state=seed, handle_unknown="most_frequent")  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fv.CollapseWarning)  # a code of few records always collapses
                encoder.fit(train.X, train.targets["salary"], sensitive_features=train.S)
            made = encoder.certify(test.X, sensitive_features=test.S, unseen_rows=True)
            salary, gap = salary_of(encoder, train, test)
            rows.append({"cells keep": code, "seed": seed, "cells": made.cells,
                         "certified ΔDemP": made.rounded, "observed TV": made.observed, "salary": salary,
                         "its ΔDemP": gap})  # fmt: skip
            print(rows[-1], flush=True)
    found = pd.DataFrame(rows)
    print("\n## UCI Adult in K cells: ΔDemP of any predictor, certified at 95 % on test rows\n")
    print(found.round(4).to_string(index=False))
    print(found.drop(columns="seed").groupby("cells keep").mean().round(4).to_string(), flush=True)


def salary_of(encoder: fv.FairEncoder, train: Split, test: Split) -> tuple[float, float]:
    """Accuracy and ΔDemP of a fresh model of salary on released rows."""
    released = [encoder.transform(part.X, sensitive_features=part.S) for part in (train, test)]
    found = probe(released[0], train.targets["salary"], released[1], test.targets["salary"], groups=test.S["sex"])
    return found.accuracy.value, found.gap.value


def adult(case: str = "I") -> tuple[pd.DataFrame, pd.DataFrame, pd.Series, np.ndarray]:
    train, test = load_adult(case)
    both = [pd.concat(pair, ignore_index=True) for pair in ((train.X, test.X), (train.S, test.S))]
    salary = pd.concat([train.targets["salary"], test.targets["salary"]], ignore_index=True)
    return *both, salary, np.repeat(["train", "test"], [len(train), len(test)])


#: The facts of the published attack: seven columns, without the relationship.
SEVEN = ["age", "workclass", "education", "marital-status", "occupation", "race", "native-country"]


def told_by_rows(
    original: pd.DataFrame, released: pd.DataFrame, s: np.ndarray, facts: list[str] | None, seed: int = 0
) -> pd.DataFrame:
    """The table of presence and absence of an audit, without its other stages."""
    target = make_target("S", read_targets(s, "S")["S"])
    parts = split_rows(None, target.values, len(original), 100_000, seed)
    people = known_people(facts, read_release(released, "released"), read_release(original, "original"), ["S"])
    kept = parts.rows
    return pd.DataFrame(presence_rows(target.take(kept), people.take(kept), parts.among(kept), Terms(seed=seed)))


def presence(runs: int = 300) -> None:
    shown = ["release", "group", "people", "certain_facts", "certain", "newly_certain", "newly_certain_low",
             "newly_certain_high", "rule", "precision", "precision_low", "rule_share", "accuracy_gain"]  # fmt: skip
    train, _ = load_adult("I")
    sex = train.S["sex"].to_numpy()
    encoder = fv.FairEncoder(
        1.2, architecture=fv.Transport(toward="cheapest"), sees_sensitive=True, random_state=0, verbose=False
    )
    released = encoder.fit(train.X, sensitive_features=train.S).transform(train.X, sensitive_features=train.S)
    facts = Facts.of(SEVEN, *(read_release(table, "").arrow for table in (train.X, released)))
    matches = Matches(facts, facts.codes(read_release(train.X, "").arrow))
    matches.add(read_release(released, "").arrow)
    absent = matches.exact == 0
    print(f"\n## UCI Adult, transport, budget 1.2, seven facts: no row matches {absent.sum():,} people; "
          f"{100 * (sex[absent] == 'Female').mean():.1f} % of them are women, "
          f"{100 * absent[sex == 'Female'].mean():.1f} % of all women\n")  # fmt: skip
    generator = np.random.default_rng(0)
    shuffled = train.X.apply(lambda column: generator.permutation(column.to_numpy()))
    half = len(train) // 2
    cases = {
        "transport, seven facts": (train.X, released, sex, SEVEN),
        "transport, default facts": (train.X, released, sex, None),
        "unchanged": (train.X, train.X, sex, None),
        "columns shuffled": (train.X, shuffled, sex, None),
        "other people": (train.X[:half], train.X[half : 2 * half].reset_index(drop=True), sex[:half], None),
    }
    found = pd.concat([told_by_rows(*case).assign(release=name) for name, case in cases.items()])
    print(found[shown].round(3).to_string(index=False), flush=True)
    hits = np.array([_covered(run) for run in range(runs)])
    print(f"\n## Files of 800 rows in which absence proves a group: the interval at 95 % covers the true share in "
          f"{100 * hits.mean():.1f} % of {runs} runs\n", flush=True)  # fmt: skip
    rows = np.random.default_rng(1).integers(0, len(train), 1_000_000)
    start = time.monotonic()
    told_by_rows(train.X.iloc[rows].reset_index(drop=True), released.iloc[rows].reset_index(drop=True), sex[rows], None)
    print(f"\n## A million rows: {time.monotonic() - start:.1f} s", flush=True)


def _covered(run: int) -> bool:
    """Whether the interval holds the share of a group of whom no row is left, in a file of which it is known."""
    generator = np.random.default_rng(run)
    table = pd.DataFrame({"town": generator.integers(0, 100, 800), "job": generator.integers(0, 8, 800),
                          "age": generator.integers(0, 10, 800)})  # fmt: skip
    table["town"] = table["town"].astype(str)
    s = generator.choice(["f", "m"], 800, p=[0.4, 0.6])
    moved = table.assign(town=np.where((s == "f") & (generator.random(800) < 0.6), "nowhere", table["town"]))
    there = set(moved.itertuples(index=False, name=None))
    absent = np.array([key not in there for key in table.itertuples(index=False, name=None)])
    women = told_by_rows(table, moved, s, list(table.columns), run).query("group == 'f'").iloc[0]
    return bool(women["newly_certain_low"] <= absent[s == "f"].mean() <= women["newly_certain_high"])


def profile() -> None:
    x, s, salary, split = adult()
    noisy = fv.noise.GaussianNoise(4.0, random_state=0).fit(x).transform(x)
    start = time.monotonic()
    result = fv.audit(noisy, s, {"salary": salary}, original=x, split=split, verbose=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n## A quick audit of Adult: {time.monotonic() - start:.0f} s, peak memory {peak:.1f} GiB; seconds by stage\n"
    )
    print(pd.Series(result.seconds).to_string(), flush=True)


if __name__ == "__main__":
    run_parts(__doc__, {
        "power": power, "leaks": listed_leaks, "more": more_leaks, "alarms": alarms, "truth": truth,
        "coverage": coverage, "certified": certified, "demand": demand, "presence": presence, "profile": profile,
    })  # fmt: skip
