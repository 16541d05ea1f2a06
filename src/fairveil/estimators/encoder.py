"""`FairEncoder`: hide S in a table or in images within a distortion budget, as a scikit-learn transformer."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import (
    BudgetNotMet,
    BudgetWarning,
    CollapseWarning,
    InputError,
    must_be,
)
from fairveil._utils.html import fragment
from fairveil._utils.progress import say
from fairveil._utils.randomness import Seeds
from fairveil.auditing import Certificate
from fairveil.data.batch import AnySchema, Batch, check_types
from fairveil.data.frames import read_columns
from fairveil.data.images import is_images, read_image_batch
from fairveil.data.layout import Layout
from fairveil.data.marginals import largest_drift
from fairveil.data.schema import Schema
from fairveil.data.sensitive import describe_sensitive
from fairveil.data.table_codec import HandleUnknown
from fairveil.data.weights import read_weights
from fairveil.encoders import (
    Architecture,
    BalancedPartition,
    ModuleFactory,
    Signature,
    check_architecture,
    choose_architecture,
    make_architecture,
    uses_bins,
)
from fairveil.estimators.adversaries import check_fairness, given_truth, with_ranges
from fairveil.estimators.base import TableTransformer
from fairveil.estimators.certificates import certify_veil, check_certified, plan_certificate
from fairveil.estimators.distortion import Floor, left_to_spend, measure, refuse_unreachable, unmet_message
from fairveil.estimators.fitted_rows import FittedRows
from fairveil.estimators.inputs import (
    Aims,
    Budget,
    Prepared,
    check_budget,
    draw_source,
    given_sensitive,
    prepare,
    read_sensitive,
    seed_from,
    split_sensitive,
)
from fairveil.estimators.training import Settings, Trained, held_out_rows, train
from fairveil.objectives import Constraint, LogLoss, Loss, make_distortion, make_loss
from fairveil.objectives.bounds import Bounds
from fairveil.objectives.distortion import RowDistortion
from fairveil.training import History, Training
from fairveil.training.confidence_bound import Achieved
from fairveil.veil import Veil

#: The budget of a certified encoder if none is given.
_UNBOUNDED = 1e9


class FairEncoder(TableTransformer):
    """A randomized encoder that hides S in X, with a distortion of at most `budget`.

    Parameters
    ----------
    budget : float or dict, optional
        D, the bound on the mean distortion of a row; or {"categorical": ..., "continuous": ...}, one for each kind.
        None: 1, or with `certified` no bound.
        With the default distortion a changed category costs 1, and replacing all values of a column of numbers by
        its median costs 1 per row on average (at most about 2 for a single value without ties, 4 with many).
    architecture : str, Architecture, module or callable
        "auto", or the name or configuration of an encoder. `Transport` exchanges values between rows of different
        groups, along optimal matchings; groups are classes of S, ranges of a number, or, if the encoder does not see S,
        rows that suggest one class or another. It needs numbers with bins. `FeedForward` is the
        paper's network. `Partition` releases one of `n_cells` records, with separate borders between them for each
        group of S: for many groups and many numbers. `Matrix` is a channel over a small alphabet, which can be
        certified. `Gaussian` adds noise to numbers. `AffineTransport` and `LatentCode` move and noise principal
        components: for images, sensors and embeddings. For images also `FeedForward`, `TransposedConv`,
        `NoisyAutoencoder`. A module, or a callable f(inputs, outputs) that returns one, is your own network. "auto"
        solves for the best channel (`Matrix(exact=True)`) if there are few combinations of categories; it uses affine
        transport for large images and tables of many numbers if the encoder sees S, the autoencoder for other large
        images, transport if S has two classes of at least 100 rows, and otherwise the feed-forward network;
        `architecture_reason_` says why.
    loss : {"log", "squared", "zero_one"} or AlphaLoss
        The adversary's loss. "squared" is for a continuous S.
    distortion : {"auto", "ranks", "squared", "hamming", "cross_entropy"} or callable(released, original)
        "ranks": changed categories, and for numbers a bounded distance between their ranks, free of scale and tails.
        "squared": changed categories, and squared changes of numbers in units of their standard deviation. "auto":
        "ranks" for numbers with bins, "squared" for others (images, encoders with a codebook or additive noise), and
        the cross-entropy for soft releases. `distortion_.unit` says what 1 amounts to.
    constraint : {"augmented_lagrangian", "penalty"}, AugmentedLagrangian or Penalty
    sees_sensitive : bool
        Whether the encoder sees S in addition to X, in `fit` and in `transform`.
    release : {"sampled", "probabilities"}
        Valid records, or the paper's soft vectors, which leak (see docs/results.md).
    fairness : {"demographic_parity", "equalized_odds"}
        Whether a release should say nothing of S at all, or nothing beyond what the truth `y` says, which adversaries
        then know (so `fit` needs it): for predictions of `y` whose errors do not depend on S.
    target_weight : float
        Lambda of `eq:generalopt-oneApp`: the weight of predicting `y` from the release. 0: no known task.
    certified : float, optional
        Upper bound on ΔDemP of any predictor, to be certified on rows that `fit` sets aside, with `confidence`. The
        encoder is then a `BalancedPartition` (S must be seen) with as many cells as these rows can certify. With
        `target_weight`, the cells keep the task `y`: the weight is that of squared differences of a linear score of it,
        and 10 is a good value.
    sensitive_columns : list of names or positions, optional
        Sensitive columns inside X, instead of `sensitive_features`; they are not released.
    schema : Schema, optional
        Roles, kinds and ranges of the columns; inferred from X when absent.
    handle_unknown : {"error", "most_frequent"}
        How `transform` treats a category that did not occur in `fit`.
    training : Training, optional
        Overrides of the architecture's default settings: `Training(steps=2000)` changes only the steps.
    unmet : {"raise", "warn"}
        What `fit` does if the bound on the distortion does not hold on held-out rows. With "warn" the encoder is fitted
        anyway, and `distortion_.met` is False.
    confidence : float
        Confidence of the upper bound on the distortion.
    verbose : bool
        Show progress: a bar on a terminal, plain lines elsewhere.
    random_state : int, numpy generator or None
        Controls training and `transform`: with an int every `transform` of the same table is the same draw, so that
        noise cannot be averaged out; with None each one is drawn from the operating system's entropy.

    Attributes
    ----------
    veil_ : Veil
        The frozen encoder with its schema.
    schema_ : Schema
        The schema of the fitted table.
    architecture_, architecture_reason_ : Architecture, str
        The encoder, and why it was chosen (not stored in files).
    history_ : History
        The course of training.
    distortion_ : Achieved
        Mean distortion of held-out rows as released, its upper confidence bound, and its unit.
    drift_ : DataFrame
        How the distribution of each column changes. `fit` warns of columns that collapse.
    fitted_rows_ : array of bool
        Which rows of X the encoder was fitted on; the others are the held-out rows (and those of weight 0). Only after
        `fit`, not in a veil file. An audit needs it: `fairveil.audit(released, S, encoder_rows=encoder.fitted_rows_)`.

    certificate_ : Certificate
        With `certified`: the certificate, from the rows that were set aside.

    Raises
    ------
    BudgetNotMet
        The upper bound on the distortion exceeds the budget, and `unmet` is "raise".
    CertificateNotMet
        The rows that were set aside do not certify the value asked for; `best` is what they do certify.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fairveil as fv
    >>> generator = np.random.default_rng(0)
    >>> X = pd.DataFrame({"town": generator.choice(["x", "y"], 200), "age": generator.integers(20, 60, 200)})
    >>> S = pd.Series(generator.choice(["f", "m"], 200), name="sex")
    >>> brief = fv.Training(steps=2, adversary_hidden=((4,),), rounds=1)
    >>> encoder = fv.FairEncoder(9.0, training=brief, verbose=False, random_state=0)
    >>> encoder.fit(X, sensitive_features=S).transform(X).shape
    (200, 2)
    """

    #: The parameter that a `FairFrontier` varies.
    _varied = "budget"

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        architecture: str | Architecture | ModuleFactory = "auto",
        loss: str | Loss = "log",
        distortion: str | RowDistortion = "auto",
        constraint: str | Constraint = "augmented_lagrangian",
        sees_sensitive: bool = False,
        release: Literal["sampled", "probabilities"] = "sampled",
        fairness: Literal["demographic_parity", "equalized_odds"] = "demographic_parity",
        target_weight: float = 0.0,
        certified: float | None = None,
        sensitive_columns: Sequence[str | int] | None = None,
        schema: Schema | None = None,
        handle_unknown: HandleUnknown = "error",
        training: Training | None = None,
        unmet: Literal["raise", "warn"] = "raise",
        confidence: float = 0.95,
        verbose: bool = True,
        random_state: Any = None,
    ) -> None:
        self.budget = budget
        self.architecture = architecture
        self.loss = loss
        self.distortion = distortion
        self.constraint = constraint
        self.sees_sensitive = sees_sensitive
        self.release = release
        self.fairness = fairness
        self.target_weight = target_weight
        self.certified = certified
        self.sensitive_columns = sensitive_columns
        self.schema = schema
        self.handle_unknown = handle_unknown
        self.training = training
        self.unmet = unmet
        self.confidence = confidence
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Learn to hide S in X.

        Parameters
        ----------
        X : table, array or images
            pandas, polars or pyarrow; images as an array (rows, height, width[, channels]) or a folder.
        y : array or table, optional
            The known task or tasks, for `target_weight`; the truth, for equalized odds.
        sensitive_features : array or table
            S, one or several columns, unless `sensitive_columns` or the schema identifies it in X.
        sample_weight : array, optional
            How many rows of the population each row stands for. Leakage and distortion are then means over that
            population; bins, ranges and units of the schema remain those of the rows.
        """
        # A failed fit must not leave an old veil.
        for name in ("veil_", "distortion_", "history_", "fitted_rows_", "certificate_"):
            self.__dict__.pop(name, None)
        if self.certified is not None:
            return self._fit_certified(X, y, sensitive_features, sample_weight)
        budget = 1.0 if self.budget is None else self.budget
        [trained] = self._train(X, y, sensitive_features, sample_weight, [budget], [0])
        if self.unmet == "raise" and not trained.achieved.met:
            raise BudgetNotMet(unmet_message(trained.achieved))
        if not trained.achieved.met:
            warnings.warn(unmet_message(trained.achieved), BudgetWarning, stacklevel=2)
        if trained.achieved.collapse:
            warnings.warn(trained.achieved.collapse, CollapseWarning, stacklevel=2)
        return self._adopt(trained)

    def _fit_certified(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> Self:
        """Set rows aside, fit a code with as many cells as these rows can certify, certify it once on them."""
        owner = type(self).__name__
        check_certified(owner, self.certified)
        assert self.certified is not None
        if make_architecture(self.architecture) is not None or not self.sees_sensitive or sample_weight is not None:
            raise InputError("certified= needs architecture='auto' and sees_sensitive=True, without sample_weight.")
        batch = self._read_batch(X, reset=True)
        inside = split_sensitive(batch, self.sensitive_columns, self.schema)
        secret = read_sensitive(batch, inside, sensitive_features)
        groups = describe_sensitive(secret, discrete=True).classes_of(secret).numpy()
        training = Training() if self.training is None else self.training
        plan = plan_certificate(self.certified, groups, training, self.confidence,
                                Seeds(seed_from(self.random_state, owner)))  # fmt: skip
        chosen, given = _safe_indexing(X, plan.rest), None if inside else secret.take(pa.array(plan.rest))
        code = BalancedPartition(n_cells=plan.cells)
        if self.target_weight:
            code = replace(code, score_weight=self.target_weight)
        inner = clone(self).set_params(certified=None, architecture=code,
                                       budget=_UNBOUNDED if self.budget is None else self.budget)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)  # a code of few records always collapses
            inner.fit(chosen, None if y is None else _safe_indexing(y, plan.rest), sensitive_features=given)
        found = plan.check(inner.certify(_safe_indexing(X, plan.aside),
                                         sensitive_features=secret.take(pa.array(plan.aside)),
                                         confidence=self.confidence, unseen_rows=True))  # fmt: skip
        if self.budget is None:  # what was measured is the promise
            inner.distortion_ = replace(inner.distortion_, bound=inner.distortion_.upper)
        fitted = np.zeros(len(batch), dtype=bool)
        fitted[plan.rest] = inner.fitted_rows_
        parameters = self.get_params(deep=False)
        self.__dict__.update({name: value for name, value in inner.__dict__.items() if name not in parameters})
        self.certificate_: Certificate = found
        self.fitted_rows_ = fitted
        self.architecture_reason_ = "certified= needs a finite code with the same shares in every group"
        return self

    def _train(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, budgets: Sequence[Budget],
        numbers: Sequence[int],
    ) -> list[Trained]:  # fmt: skip
        """Train an encoder for each pair of a budget and a seed number, all in one game."""
        settings = Settings.of(self)
        check_fairness(settings.owner, self.fairness)
        architecture = make_architecture(self.architecture)
        prepared = self._prepare(X, y, sensitive_features, sample_weight, settings, architecture)
        layout = prepared.schema.layout
        checked = [check_budget(settings.owner, budget, prepared.schema) for budget in budgets]
        bounds = Bounds.of(checked, relative=layout.shape is not None)
        if self.release not in ("sampled", "probabilities"):
            raise InputError(must_be(settings.owner, "release", "'sampled' or 'probabilities'", self.release))
        distortion = make_distortion(self.distortion, layout, self.release)
        if distortion.custom is not None and bounds.names != ("total",):
            raise InputError("A distortion function returns one number per row, so the budget must be one number too.")
        sensitive = prepared.sensitive
        seen = 0 if prepared.rows.sensitive is None else sensitive.width
        signature = Signature(layout, self.release, seen, sensitive.discrete, sensitive.names())
        self.architecture_reason_ = "chosen by the caller"
        solvable = make_loss(self.loss) == LogLoss() and not prepared.tasks and prepared.rows.given is None
        if architecture is not None and architecture.solves and not solvable:
            raise InputError(
                f"{architecture} minimises I(R; S): it needs loss='log', without a task or equalized odds."
            )
        if architecture is None:
            choice = choose_architecture(signature, distortion, _group_sizes(prepared), solvable=solvable)
            architecture, self.architecture_reason_ = choice.architecture, choice.reason
            say(f"Encoder: {architecture.name}, because {choice.reason}.", settings.show_progress)
        check_architecture(architecture, signature, distortion)
        if architecture.hides_ranges and not sensitive.discrete:
            prepared = with_ranges(prepared)
        training = settings.training.completed(architecture.defaults(layout))
        floor = Floor.of(prepared, distortion)
        if self.unmet == "raise":
            refuse_unreachable(prepared, distortion, bounds, floor, held_out_rows(len(prepared.rows), training))

        def achieved(veil: Veil, held_out: torch.Tensor, member: int) -> Achieved:
            rows, original = prepared.rows.take(held_out), prepared.original.index_select(0, held_out)
            return measure(veil, distortion, rows, original, floor.take(held_out), bounds, member, self.confidence,
                           settings.seeds.child("measure"))  # fmt: skip

        trained = train(
            prepared,
            settings,
            architecture=architecture,
            signature=signature,
            loss=make_loss(self.loss),
            distortion=distortion,
            bounds=left_to_spend(bounds, floor),
            numbers=numbers,
            measure=achieved,
        )
        assert trained[0].held_out is not None
        self.fitted_rows_ = prepared.counted.copy()
        self.fitted_rows_[np.flatnonzero(prepared.counted)[trained[0].held_out.numpy()]] = False
        return trained

    def _prepare(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, settings: Settings,
        architecture: Architecture | None,
    ) -> Prepared:  # fmt: skip
        per_column = bool(settings.training.per_column_adversaries)
        aims = Aims(make_loss(self.loss), self.target_weight, self.sees_sensitive, per_column)
        batch = self._read_batch(X, reset=True)
        inside = split_sensitive(batch, self.sensitive_columns, self.schema)
        prepared = prepare(
            batch,
            read_sensitive(batch, inside, sensitive_features),
            self.schema,
            inside,
            y,
            aims,
            bins=self.release == "sampled" and self._bins(architecture),
            handle_unknown=self.handle_unknown,
            weights=read_weights(sample_weight, len(batch)),
        )
        if self.fairness == "equalized_odds":
            prepared = given_truth(prepared, y, aims.loss)
        # Only certification depends on which rows were fitted, and only tables can be certified.
        self._fitted_rows = FittedRows.of(prepared.original) if prepared.schema.columns else None
        return prepared

    def _bins(self, architecture: Architecture | None) -> bool | Callable[[Layout], bool]:
        if architecture is None:
            classes = bool(self.sees_sensitive) and make_loss(self.loss).discrete
            return partial(uses_bins, sees_classes=classes and not callable(self.distortion))
        return architecture.uses_bins

    def _read_batch(self, X: Any, *, reset: bool) -> Batch:
        """X as a table or as images, with scikit-learn's checks."""
        if not is_images(X):
            return self._read(X, reset=reset)
        images = read_image_batch(X)
        if reset:
            self.n_features_in_ = int(np.prod(images.array.shape[1:]))
        return images

    def _adopt(self, trained: Trained) -> Self:
        self.veil_: Veil = trained.veil
        self.distortion_: Achieved = trained.achieved
        self.history_: History = trained.history
        return self

    def _point(self) -> dict[str, Any]:
        """The row of this fitted encoder in a frontier."""
        achieved = self.distortion_
        moved = largest_drift(achieved.columns)
        return {
            "distortion": achieved.mean,
            "upper": achieved.upper,
            "categorical": achieved.parts["categorical"].mean,
            "continuous": achieved.parts["continuous"].mean,
            "held_out_rows": achieved.rows,
            "met": achieved.met,
            "advantage": self.history_.advantage,
            "unit": achieved.unit,
            "largest_drift": None if moved is None else moved.total_variation,
            "drifted_column": None if moved is None else moved.column,
            "collapsed": ", ".join(drift.column for drift in achieved.columns if drift.collapsed),
        }

    @property
    def architecture_(self) -> Architecture:
        """The encoder's configuration; for `architecture="auto"`, the one that was chosen."""
        check_is_fitted(self, "veil_")
        return self.veil_.encoder.architecture

    @property
    def drift_(self) -> pd.DataFrame:
        """How the distribution of each column changes, on held-out rows: one row per encoded column.

        Columns: `column`, `total_variation` (of categories or bins), `ks` (numbers only), `distinct_before` and
        `distinct_after` (categories or bins that occur), `entropy_kept`, and `collapsed`, whether less than half of the
        entropy is left. Empty for images.
        """
        check_is_fitted(self, "veil_")
        return pd.DataFrame([{**asdict(drift), "collapsed": drift.collapsed} for drift in self.distortion_.columns])

    @property
    def budget_(self) -> Budget:
        """The bound on the distortion: the budget; without one, the bound that held-out rows confirmed."""
        check_is_fitted(self, "veil_")
        bound = self.distortion_.bound
        if bound is not None:
            return bound
        return {name: float(part.bound) for name, part in self.distortion_.parts.items() if part.bound is not None}

    @property
    def schema_(self) -> AnySchema:
        """The schema of the fitted table or images."""
        check_is_fitted(self, "veil_")
        return self.veil_.schema

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """A censored copy of X: the same kind of table, columns, types and categories; or images like the input.

        Parameters
        ----------
        X : table, array or images
        sensitive_features : array or table, optional
            S, if the encoder sees it.
        """
        check_is_fitted(self, "veil_")
        batch = self._read_batch(X, reset=False)
        check_types(batch, self.veil_.schema)
        secret = given_sensitive(self.veil_, batch, sensitive_features, "transform")
        source = draw_source(self.random_state, type(self).__name__, batch, secret)
        released = self.veil_.apply(batch.content, secret, source)
        return batch.like_origin(released, keep_types=self.veil_.encoder.signature.sampled)

    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        """Fit, then release the same rows."""
        self.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        shown = sensitive_features if self.sees_sensitive else None
        return self.transform(X, sensitive_features=shown)

    def get_metadata_routing(self) -> Any:
        """Which methods request `sensitive_features`: `fit`, and `transform` only if the encoder sees S."""
        routing = super().get_metadata_routing()
        if not self.sees_sensitive:
            routing.transform.requests.pop("sensitive_features", None)
        return routing

    def _html_repr(self) -> str:
        """For notebooks: what was achieved, above scikit-learn's diagram of the parameters."""
        diagram = str(super()._html_repr())
        if not hasattr(self, "veil_"):
            return diagram
        hidden = " & ".join(column.name for column in self.veil_.sensitive.columns)
        achieved = self.distortion_
        text = (f"Hides {hidden}. Distortion {achieved.mean:.4g} on {achieved.rows:,} held-out rows, at most "
                f"{achieved.upper:.4g} with confidence {achieved.confidence:g} (budget {self.budget}, "
                f"{'met' if achieved.met else 'not met'}).")  # fmt: skip
        return fragment("Fitted encoder", text) + diagram

    def certify(
        self, X: Any, *, sensitive_features: Any, y: Any = None, y_values: Sequence[Any] | None = None,
        clusters: Any = None, asymptotic: bool = False, confidence: float = 0.95, unseen_rows: bool = False,
    ) -> Certificate:  # fmt: skip
        """Bound ΔDemP (with `y`, every ΔEO) of any predictor on this encoder's release, from rows it was not fitted on.

        Only for finite releases. Where the exact probabilities of all records are known and soft (`Matrix`,
        `Partition`), they are averaged, so that only the rows are random; otherwise one draw of each row is counted.
        Rows that equal fitted ones more often than by chance are rejected.

        y_values: all values that y can take; by default those that occur. clusters: the person of each row, if people
        have several. asymptotic: a tighter bound that holds in the limit of many rows only; it counts draws.
        unseen_rows: assert that none of these rows was used in training, where that cannot be checked: for tables of
        few categories, or after loading from a file.
        """
        check_is_fitted(self, "veil_")
        table = self._read(X, reset=False)
        secret = read_columns(sensitive_features, "sensitive")
        fitted = getattr(self, "_fitted_rows", None)
        return certify_veil(
            self.veil_, table, secret, fitted, unseen_rows=unseen_rows, given=None if y is None else np.asarray(y),
            given_values=y_values, clusters=clusters, asymptotic=asymptotic, confidence=confidence,
        )  # fmt: skip

    def __getstate__(self) -> Any:
        """Without the hashes of the fitted rows, which stay in memory."""
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted_rows"}

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "veil_")
        return np.asarray(self.veil_.output_names(), dtype=object)

    def save(self, path: str | Path) -> None:
        """Write a `.veil` file: a manifest, weights and a SHA-256. No code, no rows; read it with `fairveil.load`.

        A custom distortion function is code, so it is not stored; nor are `verbose`, `random_state` and the training
        device and checkpoint path. The manifest does contain the schema: names, categories and ranges of the columns.
        """
        check_is_fitted(self, "veil_")
        from fairveil.estimators.saving import save  # it knows every kind of estimator

        save(self, path)


def _group_sizes(prepared: Prepared) -> list[int]:
    if not prepared.sensitive.discrete:
        return []
    sizes: list[int] = torch.bincount(prepared.rows.secrets[0]).tolist()
    return sizes
