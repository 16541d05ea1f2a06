"""The fair classifier's encoder: what it releases of a row is one of a few soft predictions of its label."""

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

#: The logit of a score starts from this times its log-likelihood under the network's belief: the draw spreads over
#: scores that are about as good.
_FAITH = 32.0


@dataclass(frozen=True)
class ClassifierHead(Architecture):
    """Of a classifier: its network, and the soft predictions it draws from.

    scores: (K, classes), rows that sum to 1. given_truth: adversaries know the true label.
    """

    name: ClassVar[str] = "classifier_head"
    selectable: ClassVar[bool] = False
    #: The adversaries of a finite release are tables, best learned fast and whole.
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

    In training the rows end in the truth, one-hot, which the network is not shown. With `given_truth` adversaries are:
    what they see is the pair of score and truth (`eq:Opt-fairClassifier-EO`).
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
        #: Labels alone are few enough to be learned apart.
        self.soft = self.scores > self.classes
        outputs = self.scores + (self.classes if self.soft else 0)
        inputs = self.layout.width + signature.sensitive_width
        self.network = BatchedMLP(members, inputs, architecture.hidden, outputs)
        self.register_buffer("atoms", torch.eye(self.released_width), persistent=False)
        self.register_buffer("log_scores", scores.log() if self.soft else scores, persistent=False)

    @property
    def released_width(self) -> int:
        """One slot for each score, or for each pair of score and truth."""
        return self.scores * (self.classes if self.architecture.given_truth else 1)

    @property
    def redraws(self) -> bool:
        """All draws of a row are seen at once already: an adversary step is better spent on other rows."""
        return False

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """One uniform number per row."""
        return draw_noise(rows, 0, 0, 0, 1, source)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Logits of the scores: (members, rows, scores)."""
        raw: Tensor = self.network(with_sensitive([rows[:, : self.layout.width]], sensitive))
        if not self.soft:
            return raw
        # Scores near the network's belief come first: were all of them learned apart, a row whose draw has settled on
        # one would hardly ever find a better one far away.
        belief = raw[..., self.scores :].softmax(dim=-1)
        return raw[..., : self.scores] + _FAITH * belief @ self.log_scores.T

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Chances of the scores; the draw is made only if it is asked for."""
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
        """Small last layer: at first all scores are about equally likely."""
        initialise(self, generators, last_scale=0.1)
