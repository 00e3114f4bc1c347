"""RSC against Huang et al. 2020, Eqs. 1 to 4, written out sample by sample."""

from copy import deepcopy

import pytest
import torch

from builders import SOFT, PlainSGD, TinyBackbone, X, at_epoch, built, labeled_batch, plain_cross_entropy
from ssdg.cli import call
from ssdg.data.sets import Batch
from ssdg.methods.generalization.rsc import Rsc, RscSettings

Y = torch.tensor([0, 1, 2, 2, 1, 0])


class FlatBackbone(TinyBackbone):
    """Keeps positions apart, like the digits CNN."""

    num_features = 45

    def pool(self, maps):
        return maps.flatten(1)


def learner(backbone=TinyBackbone, **settings):
    return built(Rsc, RscSettings(lr=0.1, weight_decay=0.01, **settings), make_backbone=backbone)


def plain_loss(nets, y, is_spatial):
    """Gradient of the true class, percentile, mask, and the share of samples that suffer most."""
    backbone, head = nets["backbone"], nets["head"]
    maps = backbone.maps(X)
    cut = maps.detach().requires_grad_()
    before = head(backbone.pool(cut))
    one_hot = y if y.ndim == 2 else torch.eye(3, dtype=torch.float64)[y]
    gradient = torch.autograd.grad((before * one_hot).sum(), cut)[0]
    mask = torch.ones_like(maps)
    for i in range(6):
        if is_spatial:
            adds = (cut[i] * gradient[i]).sum(0).detach()
            third = adds.flatten().sort(descending=True).values[2]  # 3 of 9 positions
            mask[i, :, adds >= third] = 0
        else:
            means = gradient[i].mean((1, 2))
            mask[i, means >= means.sort(descending=True).values[1]] = 0  # 2 of 5 channels
    after = head(backbone.pool(maps * mask))
    falls = [((before[i].softmax(0) - after[i].softmax(0)) @ one_hot[i]).item() for i in range(6)]
    worst = sorted(range(6), key=lambda i: -falls[i])[:2]  # a third of 6
    mask[[i for i in range(6) if i not in worst]] = 1
    return plain_cross_entropy(head(backbone.pool(maps * mask)), y)


@pytest.mark.parametrize("y", [Y, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("backbone", [TinyBackbone, FlatBackbone, lambda: TinyBackbone(norm=True)])
@pytest.mark.parametrize("is_spatial", [True, False], ids=["spatial", "channel"])
def test_weights_after_two_steps_equal_the_papers(y, backbone, is_spatial):
    rsc = learner(backbone, spatial_rate=float(is_spatial))
    nets = deepcopy(rsc.nets)
    plain = PlainSGD(nets.parameters(), rsc.settings)
    for _ in range(2):
        got = rsc.step(Batch(labeled_batch(X, y)), at_epoch(0))
        loss = plain_loss(nets, y, is_spatial)
        plain.descend(loss)
        assert got["loss"].item() == pytest.approx(loss.item())
    torch.testing.assert_close(rsc.nets.state_dict(), nets.state_dict(), rtol=1e-9, atol=1e-12)


def test_half_of_the_steps_mask_positions():
    rsc = learner()
    maps = torch.rand(2, 5, 3, 3)
    torch.manual_seed(0)
    kinds = [rsc._mask(maps, maps).shape[1] == 1 for _ in range(200)]
    assert 70 < sum(kinds) < 130


def test_every_setting_changes_the_result():
    def after(**settings):
        rsc = learner(FlatBackbone, **settings)
        torch.manual_seed(1)
        rsc.step(Batch(labeled_batch(X, Y)), at_epoch(0))
        return rsc.nets["head"].weight.square().sum().item()

    results = [after(), after(feature_rate=0.7), after(batch_rate=1.0), after(spatial_rate=0), after(spatial_rate=1)]
    assert len({round(r, 12) for r in results}) == 4  # the default is one of the last two


def test_logits_come_from_unmasked_features():
    rsc = learner()
    torch.testing.assert_close(rsc.logits(X)[0], rsc.nets["head"](rsc.nets["backbone"](X)))


def test_maps_of_one_position_are_noted(world, cache, tmp_path, capsys):
    """ResNet-18 at 32 px: masking positions has no effect, and the run says so once."""
    small = ["backbone=resnet18", "weights=none", "size=32", "batch=4", "epochs=1", "iterations=6", "spatial_rate=1"]
    args = [
        "train",
        "--preset",
        "paper",
        "--data",
        world,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--cache",
        cache,
        "--device",
        "cpu",
    ]
    assert call([str(arg) for arg in (*args, "--method", "rsc", "--out", tmp_path / "run", *small)]) == 0
    err = capsys.readouterr().err
    assert err.count("note: rsc masks no positions here") == 1
