from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from runs import train_here
from ssdg.artifact.load import load_model
from ssdg.errors import UserError
from ssdg.models.heads import Bottleneck, CosineHead, linear_head


def test_cosine_logits_by_hand() -> None:
    head = CosineHead(2, 2, temperature=0.5)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, 0.0], [2.0, 2.0]]))
    # x along the first axis: cosines 1 and 1/√2, over one half
    torch.testing.assert_close(head(torch.tensor([[7.0, 0.0]])), torch.tensor([[2.0, math.sqrt(2)]]))


def test_cosine_logits_ignore_the_length_of_features_and_are_bounded() -> None:
    torch.manual_seed(0)
    head, x = CosineHead(16, 5, temperature=0.05), torch.randn(9, 16)
    torch.testing.assert_close(head(1000 * x), head(x))
    assert head(x).abs().max() <= 20.0
    assert head(torch.zeros(1, 16)).isfinite().all()


def test_free_weights_scale_the_logits() -> None:
    torch.manual_seed(0)
    free, x = CosineHead(4, 3, temperature=0.1, unit_weights=False), torch.randn(2, 4)
    before = free(x)
    with torch.no_grad():
        free.weight.mul_(3)
    torch.testing.assert_close(free(x), 3 * before)


def test_every_head_has_its_own_start() -> None:
    heads = [linear_head(8, 3), linear_head(8, 3)]
    assert not torch.equal(heads[0].weight, heads[1].weight)
    bound = 8**-0.5
    assert max(float(p.detach().abs().max()) for h in heads for p in h.parameters()) <= bound
    assert float(CosineHead(8, 1000).weight.detach().abs().max()) == pytest.approx(bound, rel=0.01)


def test_a_linear_head_is_w_x_plus_b() -> None:
    head = linear_head(2, 1)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[2.0, -1.0]]))
        head.bias.fill_(0.5)
    assert head(torch.tensor([[3.0, 4.0]])).item() == 2.5


def test_hidden_widths_make_a_perceptron() -> None:
    head = linear_head(6, 2, hidden=(5, 4))
    assert [tuple(p.shape) for p in head.parameters()] == [(5, 6), (5,), (4, 5), (4,), (2, 4), (2,)]
    assert sum(isinstance(m, nn.ReLU) for m in head.modules()) == 2


@pytest.mark.parametrize("head", [linear_head(64, 7), linear_head(64, 7, hidden=(9,)), CosineHead(64, 7)])
def test_logits_are_the_same_under_autocast(head: nn.Module) -> None:
    x = torch.randn(3, 64)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(x)
        assert head(x.bfloat16()).dtype == torch.float32
    assert logits.dtype == torch.float32
    assert torch.equal(logits, head(x))


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="must be positive, not 0"):
        CosineHead(4, 2, temperature=0)


@pytest.mark.parametrize("method", ["dan", "dann", "cdan-e", "mcd", "mme", "osbp"])
def test_a_bottleneck_is_between_backbone_and_heads(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    """It trains at the rate of new layers, is saved with the model, and is there when the model is loaded."""
    train_here(world, cache, tmp_path, method, epochs=1, iterations=2, bottleneck=16, trunk_rate=0.1)
    model = load_model(tmp_path, "cpu")
    (bottleneck,) = (m for m in model.learner.nets.modules() if isinstance(m, Bottleneck))
    assert bottleneck.linear.weight.shape[0] == bottleneck.num_features == 16
    (optimizer, *_) = (o for o in model.learner.opts.values() if len(o.param_groups) == 2)
    new, trunk = ({id(p) for p in group["params"]} for group in optimizer.param_groups)
    assert {id(p) for p in bottleneck.linear.parameters()} <= new
    assert {id(p) for p in bottleneck.backbone.parameters()} == trunk
    assert model.logits(np.zeros((1, 32, 32, 3), np.uint8)).shape[1:] == (1, 3)
