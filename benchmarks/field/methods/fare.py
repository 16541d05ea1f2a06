"""FARE: Jovanovic et al., FARE: provably fair representation learning with practical certificates (2023).

A decision tree whose leaves are the representation. Each split, best first, lowers
(1 - gamma) Gini_y + gamma (largest Gini_s - Gini_s) the most: leaves that are pure in the task and mixed in S. A third
of the rows choose no split; they certify the leaves: an upper bound on ΔDemP of any predictor on them (by this
package's `certify`, whose bounds for finite alphabets replace those of the paper).
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fairveil as fv
from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows

#: Thresholds tried per column.
_THRESHOLDS = 16
_CERTIFYING = 1.0 / 3.0


@dataclass(frozen=True)
class _Split:
    column: int
    threshold: float
    low: int
    high: int


class FairTree:
    """Fitted on x (rows, width), labels y (0, 1) and groups s (codes)."""

    def __init__(self, x: np.ndarray, y: np.ndarray, s: np.ndarray, gamma: float, leaves: int, fewest: int) -> None:
        self.gamma, self.fewest = gamma, fewest
        self.edges = [np.unique(np.quantile(c, np.linspace(0, 1, _THRESHOLDS + 1)[1:-1])) for c in x.T]
        self.shown = np.hstack([(c[:, None] > e).astype(np.float32) for c, e in zip(x.T, self.edges, strict=True)])
        self.names = [(i, t) for i, edges in enumerate(self.edges) for t in edges]
        self.marks = np.hstack([np.eye(2, dtype=np.float32)[y], np.eye(s.max() + 1, dtype=np.float32)[s]])
        self.splits: dict[int, _Split] = {}
        self.nodes = 1
        queue: list[tuple[float, int, int, np.ndarray]] = []
        self._offer(queue, 0, np.arange(len(x)))
        while queue and len(self.splits) + 1 < leaves:
            _, node, test, rows = heapq.heappop(queue)
            low, high = self.nodes, self.nodes + 1
            self.nodes += 2
            self.splits[node] = _Split(*self.names[test], low, high)
            above = self.shown[rows, test] > 0
            self._offer(queue, low, rows[~above])
            self._offer(queue, high, rows[above])
        inner = set(self.splits)
        self.code = {node: i for i, node in enumerate(n for n in range(self.nodes) if n not in inner)}
        del self.shown, self.marks

    def _offer(self, queue: list[tuple[float, int, int, np.ndarray]], node: int, rows: np.ndarray) -> None:
        """Put the best split of a leaf into the queue, if it lowers the criterion."""
        if len(rows) < 2 * self.fewest:
            return
        shown, marks = self.shown[rows], self.marks[rows]
        whole, high = marks.sum(axis=0), shown.T @ marks
        low = whole - high
        after = self._criterion(high) + self._criterion(low)
        sizes = high[:, :2].sum(axis=1)
        after[(sizes < self.fewest) | (len(rows) - sizes < self.fewest)] = np.inf
        best = int(np.argmin(after))
        gain = float(self._criterion(whole[None])[0] - after[best])
        if gain > 1e-9:
            heapq.heappush(queue, (-gain, node, best, rows))

    def _criterion(self, counts: np.ndarray) -> np.ndarray:
        """The criterion of leaves with these counts of labels and groups, times their rows."""
        size = np.maximum(counts[:, :2].sum(axis=1), 1e-12)

        def gini(part: np.ndarray) -> np.ndarray:
            return 1.0 - ((part / size[:, None]) ** 2).sum(axis=1)

        groups = counts.shape[1] - 2
        mixed = (1.0 - 1.0 / groups) - gini(counts[:, 2:])
        return size * ((1.0 - self.gamma) * gini(counts[:, :2]) + self.gamma * mixed)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The leaf of each row, from 0."""
        node = np.zeros(len(x), dtype=int)
        for number in sorted(self.splits):  # children have larger numbers than their parents
            split, here = self.splits[number], node == number
            node[here] = np.where(x[here, split.column] > split.threshold, split.high, split.low)
        return np.array([self.code[n] for n in node.tolist()], dtype=int)


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    coder = Vectors(train.X)
    x, (_, s) = coder(train.X), np.unique(train.group, return_inverse=True)
    certifying = np.random.default_rng(seed).random(len(x)) < _CERTIFYING
    learn = ~certifying
    for gamma, leaves in ((0.1, 60), (0.5, 30), (0.8, 20), (0.9, 10)):
        tree = FairTree(x[learn], train.truth[learn], s[learn], gamma, leaves, fewest=50)
        cells = tree(x[certifying])
        bound = fv.certify(cells, s[certifying], alphabet=len(tree.code), trained_on=np.flatnonzero(learn),
                           rows=np.flatnonzero(certifying)).bound  # fmt: skip

        def apply(rows: Rows, tree: FairTree = tree) -> Output:
            return Output(pd.DataFrame({"leaf": [f"leaf {i}" for i in tree(coder(rows.X))]}))

        yield Fitted(f"gamma {gamma:g}, {leaves} leaves", apply, bound)


METHODS = [Method("FARE", fit, "Jovanovic et al. 2023, written from the paper", told=True)]
