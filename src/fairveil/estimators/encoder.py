"""`FairEncoder`: hide S in a table within a distortion budget, as a scikit-learn transformer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairveil._utils.errors import BudgetNotMet, InputError, must_be
from fairveil.auditing import Certificate
from fairveil.auditing.certificate import certify_from
from fairveil.data.frames import read_columns
from fairveil.data.images import Pictures, PictureSchema, is_pictures, read_pictures
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Unseen
from fairveil.encoders import Finite, Matrix
from fairveil.encoders.base import ModuleFactory
from fairveil.estimators.fitted_rows import FittedRows
from fairveil.estimators.inputs import (
    Aims,
    Budget,
    Prepared,
    check_budget,
    draw_source,
    given_sensitive,
    pick_device,
    prepare,
    prepare_pictures,
    read_sensitive,
    seed_from,
    split_sensitive,
)
from fairveil.estimators.table import TableTransformer
from fairveil.estimators.training import Settings, Trained, train
from fairveil.objectives import Constraint, Loss, make_constraint, make_loss
from fairveil.objectives.distortion import RowDistortion
from fairveil.training import History, Training
from fairveil.training.confidence_bound import Achieved
from fairveil.veil import Veil


class GameEstimator(TableTransformer):
    """What `FairEncoder` and `FairFrontier` share: reading the caller's input and the settings of a game."""

    def _prepare(self, X: Any, y: Any, sensitive_features: Any) -> Prepared:
        aims = Aims(make_loss(self.loss), self.target_weight, self.sees_sensitive, self.per_column_adversaries)
        if is_pictures(X):
            pictures = self._read_pictures(X)
            if self.schema is not None or self.sensitive_columns is not None:
                raise InputError("Images have no columns: leave 'schema' and 'sensitive_columns' out.")
            self._fitted_rows: FittedRows | None = None  # only a table can be certified
            return prepare_pictures(pictures, read_sensitive(pictures, [], sensitive_features), y, aims)
        table = self._read(X, reset=True)
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise InputError(must_be(type(self).__name__, "schema", "a Schema, or None to infer one", self.schema))
        inside = split_sensitive(table, self.sensitive_columns, self.schema)
        prepared = prepare(
            table,
            read_sensitive(table, inside, sensitive_features),
            self.schema,
            inside,
            y,
            aims,
            bins=self.release == "sampled"
            and self.architecture not in ("gaussian", "gaussian_full")
            and self.cells is None,
            unseen=self.unseen,
        )
        self._fitted_rows = FittedRows.of(prepared.original)
        return prepared

    def _read_pictures(self, X: Any) -> Pictures:
        pictures = read_pictures(X)
        self.n_features_in_ = int(np.prod(pictures.array.shape[1:]))
        return pictures

    def _settings(self) -> Settings:
        if self.training is not None and not isinstance(self.training, Training):
            raise InputError(must_be(type(self).__name__, "training", "a Training, or None", self.training))
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise InputError("A checkpoint needs random_state to be a whole number: without it no run repeats another.")
        return Settings(
            architecture=self.architecture,
            release=self.release,
            loss=make_loss(self.loss),
            distortion=self.distortion,
            constraint=make_constraint(self.constraint),
            training=self.training,
            confidence=self.confidence,
            unseen=self.unseen,
            device=pick_device(self.device),
            show_progress=bool(self.progress),
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            cells=self.cells,
        )

    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
        """Fit, then release the same rows."""
        self.fit(X, y, sensitive_features=sensitive_features)
        shown = sensitive_features if self.sees_sensitive else None
        return self.transform(X, sensitive_features=shown)

    def get_metadata_routing(self) -> Any:
        """Who asks for `sensitive_features`: `fit`, and `transform` only if the encoder sees S."""
        routing = super().get_metadata_routing()
        if not self.sees_sensitive:
            routing.transform.requests.pop("sensitive_features", None)
        return routing


class FairEncoder(GameEstimator):
    """A randomized encoder that hides S in X, no further than `budget` from the original.

    Parameters
    ----------
    budget : float or dict
        D, the bound on the mean distortion of a row; or {"categorical": ..., "continuous": ...}, one for each kind.
        With the default distortion it is the expected number of categorical values changed plus the squared change
        of the numbers in units of their standard deviation.
    architecture : {"auto", "transport", "feedforward", "gaussian", "gaussian_full", "matrix", "partition",
        "transposed", "autoencoder"}, module, or callable
        "transport" moves whole records towards one group of S, along optimal matchings; it needs sees_sensitive=True,
        an S of classes, and numbers with bins. "feedforward" is the paper's network. "auto": transport where S has two
        large groups, else feedforward. "partition" releases one of `cells` records, with borders between them that each
        group of S has of its own: for many groups and many numbers. A callable is f(inputs, outputs) -> module. For
        images, "feedforward" (what "auto" takes for small ones), "transposed" (a mask of noise) and "autoencoder" (for
        large ones).
    cells : int, optional
        With architecture="matrix" or "partition": turn the table into a code of at most this many cells, each released
        as one valid representative record. A release with a finite alphabet can be certified (`certify`).
    loss : {"log", "squared", "zero_one"} or AlphaLoss
        The adversary's loss. "squared" is for a continuous S.
    distortion : {"auto", "hamming", "squared", "cross_entropy"} or callable(released, original)
    constraint : {"augmented_lagrangian", "penalty"}, AugmentedLagrangian or Penalty
    sees_sensitive : bool
        Whether the encoder is shown S beside X, in `fit` and in `transform`.
    release : {"sampled", "probabilities"}
        Valid records, or the paper's soft vectors, which leak (see the README).
    target_weight : float
        Lambda of `eq:generalopt-oneApp`: the weight of predicting `y` from the release. 0: no task is known.
    sensitive_columns : list of names or positions, optional
        Sensitive columns inside X, instead of `sensitive_features`; they are not released.
    per_column_adversaries : bool
        With several sensitive columns, adversaries for each of them beside those for their joint value.
    schema : Schema, optional
        Roles, kinds and ranges of the columns; inferred from X when absent.
    unseen : {"error", "most_frequent"}
        How `transform` treats a category that was not there in `fit`.
    training : Training, optional
        Steps, networks and rates of the game; by default what suits the architecture.
    confidence : float
        Of the upper bound on the distortion.
    checkpoint : path, optional
        Where to save the state of training; if the file is there, training goes on from it.
    progress : bool
        A bar on a terminal, plain lines elsewhere, nothing if False.
    device : {"auto", "cpu", "cuda", "mps"}
    random_state : int, numpy generator or None
        Rules training and `transform`: with an int every `transform` of the same table is the same draw, so that no
        noise can be averaged away; with None each one is drawn from the operating system's entropy.

    Attributes
    ----------
    veil_ : the frozen encoder with its schema. schema_ : the schema. history_ : what happened in training.
    distortion_ : mean distortion of held-out rows as released, and its upper confidence bound.

    Raises
    ------
    BudgetNotMet : the upper bound on the distortion exceeds the budget.
    """

    def __init__(
        self,
        budget: Budget = 1.0,
        *,
        architecture: str | ModuleFactory = "auto",
        cells: int | None = None,
        loss: str | Loss = "log",
        distortion: str | RowDistortion = "auto",
        constraint: str | Constraint = "augmented_lagrangian",
        sees_sensitive: bool = False,
        release: Literal["sampled", "probabilities"] = "sampled",
        target_weight: float = 0.0,
        sensitive_columns: Sequence[str | int] | None = None,
        per_column_adversaries: bool = False,
        schema: Schema | None = None,
        unseen: Unseen = "error",
        training: Training | None = None,
        confidence: float = 0.95,
        checkpoint: str | Path | None = None,
        progress: bool = True,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.budget = budget
        self.architecture = architecture
        self.cells = cells
        self.loss = loss
        self.distortion = distortion
        self.constraint = constraint
        self.sees_sensitive = sees_sensitive
        self.release = release
        self.target_weight = target_weight
        self.sensitive_columns = sensitive_columns
        self.per_column_adversaries = per_column_adversaries
        self.schema = schema
        self.unseen = unseen
        self.training = training
        self.confidence = confidence
        self.checkpoint = checkpoint
        self.progress = progress
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Learn to hide `sensitive_features` in X. `y` is used only with `target_weight`."""
        for name in ("veil_", "distortion_", "history_"):  # a fit that fails must not leave an older veil behind
            self.__dict__.pop(name, None)
        settings = self._settings()
        prepared = self._prepare(X, y, sensitive_features)
        budget = check_budget(type(self).__name__, self.budget, prepared.schema)
        [trained] = train(prepared, [budget], [0], settings, seed_from(self.random_state))
        if not trained.achieved.met:
            raise BudgetNotMet(unmet_message(trained.achieved))
        return self._adopt(trained)

    def _adopt(self, trained: Trained) -> Self:
        self.veil_: Veil = trained.veil
        self.distortion_: Achieved = trained.achieved
        self.history_: History = trained.history
        return self

    @property
    def schema_(self) -> Schema | PictureSchema:
        """The schema of the fitted table."""
        check_is_fitted(self, "veil_")
        return self.veil_.schema

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """A censored copy of X: the same kind of table, columns, types and categories; or images like those given."""
        check_is_fitted(self, "veil_")
        if isinstance(self.veil_.schema, PictureSchema):
            pictures = read_pictures(X)
            shown = given_sensitive(self.veil_, pictures, sensitive_features, "transform")
            source = draw_source(self.random_state, type(self).__name__, pictures, shown)
            return self.veil_.apply_to_pictures(pictures, shown, source)
        table = self._read(X, reset=False)
        secret = given_sensitive(self.veil_, table, sensitive_features, "transform")
        source = draw_source(self.random_state, type(self).__name__, table.arrow, secret)
        released = self.veil_.apply(table.arrow, secret, source)
        return table.like_origin(released, keep_types=self.veil_.encoder.spec.release == "sampled")

    def certify(
        self, X: Any, *, sensitive_features: Any, y: Any = None, confidence: float = 0.95, unseen_rows: bool = False
    ) -> Certificate:
        """Bound ΔDemP (with `y`, every ΔEO) of any predictor on this encoder's release, from rows it was not fitted on.

        For a finite release only. The channel of architecture="matrix" is known exactly, and what is left to chance are
        the rows; of "partition" one draw of each row is counted. Rows that equal fitted ones more often than chance are
        refused. unseen_rows: vouch that none of these rows was used in training, where that cannot be told: in tables
        of few categories, or after loading from a file.
        """
        check_is_fitted(self, "veil_")
        finite, fitted = self.veil_.encoder, getattr(self, "_fitted_rows", None)
        if not isinstance(finite, Finite):
            raise InputError("Only a finite release can be certified: use architecture='matrix' or 'partition', with "
                             "cells=K for a table that is not small and categorical.")  # fmt: skip
        passed = [column.name for column in self.veil_.schema.columns if column.role == "pass"]
        if passed:
            raise InputError(f"Columns with the role 'pass' ({', '.join(map(repr, passed))}) are released unseen: "
                             "nothing can be certified of a release that holds them. Drop them.")  # fmt: skip
        if fitted is None and not unseen_rows:
            raise InputError("This encoder was read from a file, which holds no rows: whether these were used in "
                             "training cannot be told. If they were not, say so with unseen_rows=True.")  # fmt: skip
        table = self._read(X, reset=False)
        secret = read_columns(sensitive_features, "sensitive")
        if secret.num_rows != len(table):
            raise InputError(f"X has {len(table)} rows, sensitive_features {secret.num_rows}.")
        x = self.veil_.codec.encode(table.arrow)
        if unseen_rows or fitted is None:
            evidence = f"{len(table):,} rows; that none of them was used in training is the caller's word."
        else:
            evidence = fitted.refuse(self.veil_.codec.original(table.arrow, x))
        names = [" & ".join(map(repr, value)) for value in self.veil_.sensitive.joint_values()]
        transition = None
        if isinstance(finite, Matrix):
            channels = finite.transition()[0].double().numpy()
            each = np.broadcast_to(channels, (len(names), *channels.shape[1:]))
            transition = dict(zip(names, each, strict=True))
        else:
            # One draw, which these rows fix: of several draws the best could be picked, and would prove nothing.
            source = draw_source(0, type(self).__name__, table.arrow, secret)
            x = self.veil_.values(x, self.veil_.shown(len(table), secret), source)
        groups = np.array(names)[self.veil_.sensitive.classes_of(secret).numpy()]
        return certify_from(
            finite.cell_of(x).numpy(),
            groups,
            finite.cells,
            evidence,
            names=names,
            transition=transition,
            given=None if y is None else np.asarray(y),
            confidence=confidence,
        )

    def __getstate__(self) -> Any:
        """Without the hashes of the fitted rows: they stay in memory."""
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted_rows"}

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of a release."""
        check_is_fitted(self, "veil_")
        return np.asarray(self.veil_.output_names(), dtype=object)

    def save(self, path: str | Path) -> None:
        """Write a `.veil` file: a manifest, weights and a SHA-256. No code, no rows; read it with `fairveil.load`.

        A distortion function of your own is code, so it is not kept; nor are `device`, `progress`, `checkpoint` and
        `random_state`. The manifest does hold the schema: names, categories and ranges of the columns.
        """
        check_is_fitted(self, "veil_")
        from fairveil.estimators.saving import save  # it knows every kind of estimator

        save(self, path)


def unmet_message(achieved: Achieved) -> str:
    """Which bound does not hold, by how much, and what to do."""
    broken = [("distortion", achieved), *((f"{kind} distortion", part) for kind, part in achieved.parts.items())]
    lines = [
        f"the {name} of {part.rows} held-out rows is {part.mean:.4g}, at most {part.upper:.4g} with confidence "
        f"{part.confidence:.3g}, above the budget of {part.bound:.4g}"
        for name, part in broken
        if part.bound is not None and part.upper > part.bound
    ]
    few = " There are too few held-out rows to verify any budget: give more rows." if achieved.rows < 30 else ""
    return f"{'; '.join(lines).capitalize()}.{few} Raise the budget, train for more steps, or give more rows."
