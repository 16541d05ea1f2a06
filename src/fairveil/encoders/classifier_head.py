"""The fair classifier's encoder: what it releases of a row is one of a few soft predictions of its label."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fairveil._utils.randomness import RandomSource
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec, with_sensitive
from fairveil.encoders.heads import Noise, draw_noise
from fairveil.encoders.layers import BatchedMLP, initialise
from fairveil.objectives.distortion import Release

#: The logit of a score starts from this times its log-likelihood under the network's belief: the draw spreads over
#: scores that are about as good.
_FAITH = 32.0


class Labels(Encoder):
    """P(score | row[, S]) for each member; `spec.scores` are the soft predictions.

    In training the rows end in the truth, one-hot, which the network is not shown. With `spec.given_truth` adversaries
    are: what they look at is the pair of score and truth (`eq:Opt-fairClassifier-EO`).
    """

    learns_chances = True
    releases_rows = False
    log_scores: Tensor
    atoms: Tensor

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        self.scores, self.classes = len(spec.scores), len(spec.scores[0])
        scores = torch.tensor(spec.scores)
        #: Labels alone are few enough to be learned apart.
        self.soft = self.scores > self.classes
        outputs = self.scores + (self.classes if self.soft else 0)
        self.network = BatchedMLP(members, layout.width + spec.sensitive_width, spec.hidden, outputs)
        self.register_buffer("atoms", torch.eye(self.released_width), persistent=False)
        self.register_buffer("log_scores", scores.log() if self.soft else scores, persistent=False)

    @property
    def released_width(self) -> int:
        """One slot for each score, or for each pair of score and truth."""
        return self.scores * (self.classes if self.spec.given_truth else 1)

    @property
    def redraws(self) -> bool:
        """All draws of a row are looked at already: another look is worth other rows."""
        return False

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """One uniform number a row."""
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

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Chances of the scores; the draw is made only if it is asked for."""
        chances = proposal.softmax(dim=-1)
        weights = chances
        if self.spec.given_truth and rows.shape[1] > self.layout.width:
            truth = rows[:, self.layout.width :]
            weights = (chances.unsqueeze(-1) * truth.unsqueeze(-2)).flatten(-2)

        def drawn() -> Tensor:
            score = (chances.detach().cumsum(dim=-1)[..., :-1] <= noise.uniform).sum(dim=-1)
            return F.one_hot(score, self.scores).to(rows.dtype)

        return Release(drawn, chances, self.atoms, weights)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Small last layer: at first all scores are about equally likely."""
        initialise(self, generators, last_scale=0.1)
