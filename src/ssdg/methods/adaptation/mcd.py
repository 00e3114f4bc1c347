"""Maximum Classifier Discrepancy (Saito et al., CVPR 2018)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn, no_grad, stack

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.discrepancy import l1_discrepancy
from ...models.heads import linear_head
from ...models.layers import double_batch_norm_update
from ..api import AdaptationSettings, MakeBackbone, Method, Progress, Sizes, descend, register, sgd


class McdSettings(AdaptationSettings):
    """Settings of MCD; four inner steps are the default of its paper's experiments."""

    inner_steps: int = Field(4, ge=1, description="updates of the feature extractor in step C")


class Mcd:
    """One feature extractor and two classifiers that detect unlabeled images far from the labeled support.

    Labels may be soft, as in an intermediate domain. Labeled and unlabeled images are forwarded in separate
    batches, so batch norm normalizes each domain with its own statistics during training.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: McdSettings) -> None:
        self.features = make_backbone()
        self.heads = nn.ModuleList([linear_head(self.features.num_features, sizes.num_classes) for _ in range(2)])
        self.nets = nn.ModuleDict({"features": self.features, "heads": self.heads})
        self.opts = {"features": sgd([self.features], settings), "heads": sgd([self.heads], settings)}
        self.inner_steps = settings.inner_steps

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take steps A, B and C of the paper on one batch."""
        assert batch.unlabeled is not None
        x, y, u = batch.labeled.x, batch.labeled.y, batch.unlabeled.x
        # A: features and classifiers learn the labeled batch.
        loss_a = self._classification_loss(self.features(x), y)
        descend(loss_a, *self.opts.values())
        # B: classifiers diverge on the unlabeled batch and stay accurate on the labeled one; features are fixed.
        with no_grad():
            features_l = self.features(x)
        with double_batch_norm_update(self.features):
            features_u = self.features(u)  # its graph serves the first step of C too: B does not change the features
        discrepancy = self._discrepancy(features_u.detach())
        descend(self._classification_loss(features_l, y) - discrepancy, self.opts["heads"])
        # C: features reduce the disagreement of the classifiers, which are fixed.
        for inner in range(self.inner_steps):
            loss_c = self._discrepancy(features_u if inner == 0 else self.features(u))
            descend(loss_c, self.opts["features"])
        return {"loss": loss_a.detach(), "discrepancy": discrepancy.detach(), "closed": loss_c.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (2, B, classes): both classifiers."""
        features = self.features(x)
        return stack([head(features) for head in self.heads])

    def _classification_loss(self, features: Tensor, y: Tensor) -> Tensor:
        first, second = (cross_entropy(head(features), y) for head in self.heads)
        return first + second

    def _discrepancy(self, features: Tensor) -> Tensor:
        first, second = (head(features).softmax(-1) for head in self.heads)
        return l1_discrepancy(first, second)


register(
    Method(
        name="mcd",
        family="DA",
        paper="Saito et al., Maximum Classifier Discrepancy for Unsupervised Domain Adaptation, CVPR 2018",
        summary="two classifiers maximize their disagreement on unlabeled images, features minimize it",
        learner=Mcd,
        settings=McdSettings,
        needs=("unlabeled",),
        # Fewer inner steps allow more steps in the same time: counting a backward pass as two, `fast` costs 7 forward
        # passes a step instead of 16. At lr 0.03, the digits CNN unlearns the labeled images.
        presets={
            "fast": {"inner_steps": 1, "epochs": 12},
            "quick": {"inner_steps": 2},
            "quick none": {"inner_steps": 1, "lr": 0.02},
        },
    )
)
