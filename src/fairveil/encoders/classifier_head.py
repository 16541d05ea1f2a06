"""The fair classifier's encoder: for each row it releases one of a few soft predictions of its label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fairveil._utils.randomness import RandomSource
from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.base import Encoder, with_sensitive
from fairveil.encoders.heads import Noise, draw_noise
from fairveil.encoders.layers import BatchedMLP, initialise
from fairveil.objectives.released import ReleasedBatch

#: The logit of a score starts at this times its log-likelihood under the network's belief: the draw spreads over
#: scores of similar quality.
_FAITH = 32.0


@dataclass(frozen=True)
class ClassifierHead(Architecture):
    """A classifier's network, and the soft predictions it draws from.

    scores: (K, classes), rows that sum to 1. given_truth: adversaries know the true label.
    """

    name: ClassVar[str] = "classifier_head"
    selectable: ClassVar[bool] = False
    #: The adversaries of a finite release are tables, best trained fast and without regularisation.
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 1500,
        "adversary_steps": 1,
        "learning_rate": 2e-3,
        "adversary_learning_rate": 3e-2,
        "adversary_hidden": ((),),
        "adversary_dropout": 0.0,
        "adversary_decay": 0.0,
    }

    scores: tuple[tuple[float, ...], ...] = ()
    given_truth: bool = False
    hidden: tuple[int, ...] = (128, 128)

    def build(self, signature: Signature, members: int) -> "ClassifierEncoder":
        """The network."""
        return ClassifierEncoder(self, signature, members)


class ClassifierEncoder(Encoder):
    """P(score | row[, S]) for each member.

    In training, rows end with the true label, one-hot, which the network does not see. With `given_truth` adversaries
    do: they see the pair of score and label (`eq:Opt-fairClassifier-EO`).
    """

    architecture: ClassifierHead
    learns_chances = True
    releases_rows = False
    log_scores: Tensor
    atoms: Tensor

    def __init__(self, architecture: ClassifierHead, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.scores, self.classes = len(architecture.scores), len(architecture.scores[0])
        scores = torch.tensor(architecture.scores)
        #: Labels alone are few enough to be learned independently.
        self.soft = self.scores > self.classes
        outputs = self.scores + (self.classes if self.soft else 0)
        inputs = self.layout.width + signature.sensitive_width
        self.network = BatchedMLP(members, inputs, architecture.hidden, outputs)
        self.register_buffer("atoms", torch.eye(self.released_width), persistent=False)
        self.register_buffer("log_scores", scores.log() if self.soft else scores, persistent=False)

    @property
    def released_width(self) -> int:
        """One slot per score, or per pair of score and true label."""
        return self.scores * (self.classes if self.architecture.given_truth else 1)

    @property
    def redraws(self) -> bool:
        """All draws of a row are used at once already: an adversary step is better spent on other rows."""
        return False

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """One uniform number per row."""
        return draw_noise(rows, 0, 0, 0, 1, source)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Logits of the scores: (members, rows, scores)."""
        raw: Tensor = self.network(with_sensitive([rows[:, : self.layout.width]], sensitive))
        if not self.soft:
            return raw
        # Scores near the network's belief are preferred: if all were learned independently, a row whose draw has
        # settled on one score would rarely find a better one far away.
        belief = raw[..., self.scores :].softmax(dim=-1)
        return raw[..., : self.scores] + _FAITH * belief @ self.log_scores.T

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Probabilities of the scores; the draw itself is lazy."""
        chances = proposal.softmax(dim=-1)
        weights = chances
        if self.architecture.given_truth and rows.shape[1] > self.layout.width:
            truth = rows[:, self.layout.width :]
            weights = (chances.unsqueeze(-1) * truth.unsqueeze(-2)).flatten(-2)

        def drawn() -> Tensor:
            score = (chances.detach().cumsum(dim=-1)[..., :-1] <= noise.uniform).sum(dim=-1)
            return F.one_hot(score, self.scores).to(rows.dtype)

        return ReleasedBatch(drawn, chances, self.atoms, weights)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Small last layer: initially all scores are about equally likely."""
        initialise(self, generators, last_scale=0.1)
