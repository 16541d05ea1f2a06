"""Errors and warnings. A message says what, where and what to do, and never shows a data value."""

from collections.abc import Sequence


class InputError(ValueError):
    """The input cannot be used. Lists every problem found, not only the first.

    Examples
    --------
    >>> print(InputError(["Column 'a' is missing.", "Column 'b' has no role."]))
    2 problems with the input:
      - Column 'a' is missing.
      - Column 'b' has no role.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__(_listing(self.problems))


class BudgetNotMet(RuntimeError):
    """The upper confidence bound on the distortion exceeds the budget, so no veil is returned.

    Examples
    --------
    >>> import fairveil as fv
    >>> try:
    ...     fv.FairEncoder(0.001).fit(X, sensitive_features=S)  # doctest: +SKIP
    ... except fv.BudgetNotMet as error:
    ...     print(error)  # what was reached; raise the budget, or give more rows
    """


class CertificateNotMet(RuntimeError):
    """The rows that were set aside do not certify the value asked for. best: the value that they do certify.

    Examples
    --------
    >>> CertificateNotMet("These rows certify 0.08, not 0.05.", best=0.08).best
    0.08
    """

    def __init__(self, message: str, best: float) -> None:
        self.best = best
        super().__init__(message)

    def __reduce__(self) -> tuple[type["CertificateNotMet"], tuple[str, float]]:
        """So that it can be pickled."""
        return type(self), (str(self), self.best)


class BudgetWarning(UserWarning):
    """A bound was not verified on held-out rows, and the caller chose to continue anyway.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", BudgetWarning)  # doctest: +SKIP
    """


class TrainingFailed(RuntimeError):
    """Training diverged: a player's loss is not finite.

    Examples
    --------
    >>> import fairveil as fv
    >>> training = fv.Training(learning_rate=1e-4)  # a smaller rate usually helps
    """


class VeilFileError(ValueError):
    """A `.veil` or checkpoint file is damaged, was altered, or is a different kind of file.

    Examples
    --------
    >>> import fairveil as fv
    >>> try:
    ...     fv.load(b"not a veil")
    ... except fv.VeilFileError:
    ...     print("refused")
    refused
    """


class DataNotFound(FileNotFoundError):
    """A data set is in none of the expected places.

    Examples
    --------
    >>> import fairveil as fv
    >>> try:
    ...     train, test = fv.datasets.load_utkface()  # doctest: +SKIP
    ... except fv.DataNotFound as error:
    ...     print(error)  # where the files were expected
    """


class ClippedWarning(UserWarning):
    """Numbers outside the schema's range were clipped before encoding.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore", ClippedWarning)  # doctest: +SKIP
    """


class CollapseWarning(UserWarning):
    """Some columns of a release hold few of the values they had.

    Examples
    --------
    >>> encoder.drift_  # every column's distribution, before and after  # doctest: +SKIP
    """


def _listing(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n".join([f"{len(problems)} problems with the input:", *(f"  - {problem}" for problem in problems)])


def rows_named(rows: Sequence[int], most: int = 5) -> str:
    """Row positions for a message; only the first few if there are many.

    >>> rows_named([17, 402])
    'rows 17, 402'
    >>> rows_named(list(range(9)))
    'rows 0, 1, 2, 3, 4 and 4 more'
    """
    shown = ", ".join(str(int(row)) for row in rows[:most])
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{more}"


def must_be(owner: str, name: str, expected: str, got: object) -> str:
    """The message for an invalid parameter, worded as in scikit-learn.

    >>> must_be("FairEncoder", "budget", "a number above 0", -1)
    "The 'budget' parameter of FairEncoder must be a number above 0. Got -1 instead."
    """
    shown = repr(got) if got is None or isinstance(got, (str, int, float)) else f"a {type(got).__name__}"
    return f"The {name!r} parameter of {owner} must be {expected}. Got {shown} instead."
