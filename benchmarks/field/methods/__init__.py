"""The methods of the comparison, one file each (those of one package together), in the order of the tables."""

from field.methods import (
    adversarial,
    disparate_impact,
    exponentiated_gradient,
    fair_pca,
    fairlearn_removers,
    fare,
    gradient_projection,
    leace,
    lfr,
    noise,
    original,
    ours,
    paper,
    randomised_repair,
    reweighing,
    thresholds,
)
from field.protocol import Method

METHODS: dict[str, Method] = {
    method.name: method
    for module in (original, ours, fairlearn_removers, leace, gradient_projection, fair_pca, disparate_impact,
                   randomised_repair, noise, paper, fare, lfr, adversarial, thresholds, exponentiated_gradient,
                   reweighing)
    for method in module.METHODS
}  # fmt: skip

#: Methods that the comparison lacks, with the reason.
ABSENT = {
    "FNF": "no package installs here; exact densities of mixed tables are not part of its paper",
    "VFAE": "no maintained package; not written yet",
    "CuTS": "its licence and dependencies have not been examined",
    "TABFAIRGDT": "no package; not written yet",
    "OptimPreproc": "its code in AIF360 needs a distortion function written by hand for every table",
    "AIF360 AdversarialDebiasing": "needs TensorFlow 1 sessions; Zhang et al. is the same method",
}
