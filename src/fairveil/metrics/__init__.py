"""Fairness and accuracy metrics with confidence intervals and sample sizes, for arrays.

Examples
--------
>>> import fairveil as fv
>>> fv.metrics.demographic_parity_gap([1, 1, 0, 0] * 50, ["f", "m"] * 100).largest().value
0.0
"""

from fairveil.metrics.estimate import (
    Estimate,
    clopper_pearson,
    difference,
    hits_and_rows,
    of_mean,
    proportion,
    share,
)
from fairveil.metrics.parity import (
    Gap,
    absolute_error_cdf,
    demographic_parity_gap,
    equalized_odds_gap,
    group_rates,
)
from fairveil.metrics.scores import (
    accuracy,
    auc_influence,
    balanced_accuracy,
    log_loss,
    r_squared,
    rank_correlation,
    roc_auc,
    weighted_auc,
)

__all__ = [
    "Estimate",
    "Gap",
    "absolute_error_cdf",
    "accuracy",
    "auc_influence",
    "balanced_accuracy",
    "clopper_pearson",
    "demographic_parity_gap",
    "difference",
    "equalized_odds_gap",
    "group_rates",
    "hits_and_rows",
    "log_loss",
    "of_mean",
    "proportion",
    "r_squared",
    "rank_correlation",
    "roc_auc",
    "share",
    "weighted_auc",
]
