"""The style confusor against the paper's equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ssdg.errors import UserError
from ssdg.models.backbones import build_backbone
from ssdg.models.layers import StyleConfusor, attach_style, confuse_style


def maps(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def paper_style(features: Tensor, shuffled: list[int], mix: list[float], eps: float) -> Tensor:
    """Equations transformation_params and transform, number by number."""
    batch, channels, height, width = features.shape
    count = height * width

    def statistics(i: int, c: int) -> tuple[float, float]:
        values = [float(v) for v in features[i, c].flatten()]
        mu = sum(values) / count
        return mu, math.sqrt(sum((v - mu) ** 2 for v in values) / count)

    out = torch.empty_like(features)
    for i in range(batch):
        lam = mix[i]
        for c in range(channels):
            mu, sigma = statistics(i, c)
            mu_new, sigma_new = statistics(shuffled[i], c)
            beta = lam * mu + (1 - lam) * mu_new
            gamma = lam * sigma + (1 - lam) * sigma_new
            for h in range(height):
                for w in range(width):
                    out[i, c, h, w] = gamma * (float(features[i, c, h, w]) - mu) / (sigma + eps) + beta
    return out


@pytest.mark.parametrize("eps", [1e-6, 0.1])
@pytest.mark.parametrize("detach", [False, True])
def test_equals_the_paper_as_loops(eps: float, detach: bool) -> None:
    features = maps(4, 3, 2, 5)
    shuffled, mix = [2, 0, 3, 1], [0.3, 0.9, 0.0, 0.5]
    ours = confuse_style(features, torch.tensor(shuffled), torch.tensor(mix), eps=eps, detach=detach)
    mix = [float(v) for v in torch.tensor(mix)]  # as float32 rounds them
    torch.testing.assert_close(ours, paper_style(features, shuffled, mix, eps), atol=1e-12, rtol=0)


def test_a_value_worked_by_hand() -> None:
    # Sample 0: (1, 3): mean 2, deviation 1. Sample 1: (10, 30): mean 20, deviation 10.
    features = torch.tensor([[1.0, 3.0], [10.0, 30.0]], dtype=torch.float64).view(2, 1, 1, 2)
    out = confuse_style(features, torch.tensor([1, 0]), torch.tensor([0.25, 1.0]), eps=1e-12)
    # Sample 0, λ = 1/4: mean 2/4 + 3 * 20/4 = 15.5, deviation 1/4 + 3 * 10/4 = 7.75: 15.5 -/+ 7.75.
    torch.testing.assert_close(out.flatten()[:2], torch.tensor([7.75, 23.25], dtype=torch.float64))
    torch.testing.assert_close(out[1], features[1])


def test_is_the_identity_at_lambda_one_and_for_a_batch_kept_in_order() -> None:
    features = maps(5, 4, 3, 3)
    order = torch.arange(5)
    same = confuse_style(features, order.roll(1), torch.ones(5))
    torch.testing.assert_close(same, features, atol=1e-5, rtol=0)
    torch.testing.assert_close(confuse_style(features, order, torch.rand(5)), features, atol=1e-5, rtol=0)


def test_the_output_has_the_mixed_mean_and_deviation() -> None:
    features = 3 * maps(6, 4, 8, 8) + 1
    shuffled, lam = torch.tensor([3, 4, 5, 0, 1, 2]), torch.linspace(0, 1, 6).double()
    out = confuse_style(features, shuffled, lam)
    mean, deviation = features.mean((2, 3)), features.std((2, 3), correction=0)
    lam = lam[:, None]
    beta = lam * mean + (1 - lam) * mean[shuffled]
    gamma = lam * deviation + (1 - lam) * deviation[shuffled]
    torch.testing.assert_close(out.mean((2, 3)), beta)
    torch.testing.assert_close(out.std((2, 3), correction=0), gamma, rtol=1e-5, atol=0)


@pytest.mark.parametrize("detach", [False, True])
def test_the_detached_gradient_is_a_fixed_scale(detach: bool) -> None:
    features = maps(2, 1, 2, 2).requires_grad_()
    out = confuse_style(features, torch.tensor([1, 0]), torch.tensor([0.5, 0.5]), detach=detach)
    out.sum().backward()
    deviation = features.detach().std((2, 3), correction=0, keepdim=True)
    scale = (deviation.mean(0) / (deviation + 1e-6)).expand_as(features)
    # With gradients through the statistics the sum is the sum of the means, whose derivative is one.
    torch.testing.assert_close(features.grad, scale if detach else torch.ones_like(features))


def test_gradients_are_those_of_finite_differences() -> None:
    features = maps(3, 2, 2, 3).requires_grad_()
    shuffled, lam = torch.tensor([1, 2, 0]), torch.tensor([0.2, 0.7, 0.5]).double()
    for eps in (1e-6, 0.5):  # at 0.5 some channels are near the clamp of the variance, some above
        assert torch.autograd.gradcheck(lambda f, eps=eps: confuse_style(f, shuffled, lam, eps=eps), features)


def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    features = maps(3, 2, 2, 3).requires_grad_()
    out = confuse_style(features, torch.tensor([1, 2, 0]), torch.tensor([0.2, 0.7, 0.5]).double()).square().sum()
    (once,) = torch.autograd.grad(out, features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        once.sum().backward()


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dead_channel_gives_finite_outputs_and_gradients(dtype: torch.dtype, detach: bool) -> None:
    features = maps(3, 2, 4, 4).to(dtype)
    features[0, 0], features[1, 1] = 0.0, 5.0  # zero variance
    features.requires_grad_()
    out = confuse_style(features, torch.tensor([1, 2, 0]), torch.tensor([0.3, 0.6, 0.0]), detach=detach)
    out.float().square().sum().backward()
    assert out.isfinite().all()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_a_map_of_one_position_gets_the_mixed_mean() -> None:
    features = torch.tensor([[2.0], [6.0]]).view(2, 1, 1, 1)
    out = confuse_style(features, torch.tensor([1, 0]), torch.tensor([0.75, 0.5]))
    torch.testing.assert_close(out.flatten(), torch.tensor([3.0, 4.0]))


def test_the_dtype_stays_and_statistics_are_float32_under_autocast() -> None:
    features = (100 + maps(4, 3, 16, 16)).bfloat16()
    shuffled, lam = torch.tensor([1, 2, 3, 0]), torch.tensor([0.1, 0.5, 0.6, 0.9])
    with torch.autocast("cpu", torch.bfloat16):
        out = confuse_style(features, shuffled, lam)
    assert out.dtype == torch.bfloat16
    exact = confuse_style(features.double(), shuffled, lam.double())
    torch.testing.assert_close(out.double(), exact, atol=0.3, rtol=0)  # half a step of bfloat16 at 100 is 0.25


def test_channels_last_stays_and_gives_the_same() -> None:
    features = maps(4, 8, 6, 6).float()
    shuffled, lam = torch.tensor([1, 2, 3, 0]), torch.tensor([0.1, 0.5, 0.6, 0.9])
    last = confuse_style(features.contiguous(memory_format=torch.channels_last), shuffled, lam)
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, confuse_style(features, shuffled, lam), atol=1e-5, rtol=1e-5)


def test_tokens_are_refused() -> None:
    with pytest.raises(UserError, match=r"needs maps of shape \(B, C, h, w\), not \(2, 49, 8\)"):
        confuse_style(torch.zeros(2, 49, 8), torch.tensor([1, 0]), torch.ones(2))


def test_the_confusor_is_always_on_in_training_and_off_in_evaluation() -> None:
    features = maps(8, 2, 3, 3).float()
    confusor = StyleConfusor()
    torch.manual_seed(0)
    assert all(not torch.allclose(confusor(features), features, atol=1e-3) for _ in range(50))
    confusor.eval()
    before = torch.get_rng_state()
    assert confusor(features) is features
    assert torch.equal(torch.get_rng_state(), before)


def test_the_confusor_draws_a_new_style_per_call_from_the_global_seed() -> None:
    features = maps(8, 2, 3, 3).float()
    confusor = StyleConfusor()
    torch.manual_seed(4)
    first, second = confusor(features), confusor(features)
    torch.manual_seed(4)
    assert torch.equal(confusor(features), first)
    assert not torch.equal(first, second)


def test_lambda_is_one_draw_per_sample_from_beta() -> None:
    """Means are 0 and 1, so the output's mean is λ or 1 - λ of each pair with different means."""
    torch.manual_seed(0)
    features = torch.zeros(4000, 1, 1, 2)
    features[:2000] = 1.0
    lam = StyleConfusor(alpha=0.5)(features).mean((1, 2, 3))
    lam = torch.cat([lam[:2000], 1 - lam[2000:]])
    mixed = lam[lam < 1 - 1e-6]  # about half of the samples have a partner with the other mean
    assert 1700 < len(mixed) < 2300
    # Beta(1/2, 1/2): mean 1/2, variance 1/8, P(λ < 0.1) = 2/π asin(√0.1) = 0.2048
    assert float(mixed.mean()) == pytest.approx(0.5, abs=0.04)
    assert float(mixed.var()) == pytest.approx(0.125, abs=0.015)
    assert float((mixed < 0.1).float().mean()) == pytest.approx(0.2048, abs=0.04)


def test_every_setting_of_the_confusor_matters() -> None:
    features = maps(8, 2, 3, 3).float()

    def run(**settings: float) -> Tensor:
        torch.manual_seed(1)
        return StyleConfusor(**settings)(features)

    usual = run()
    assert not torch.allclose(run(alpha=5.0), usual)
    assert not torch.allclose(run(eps=0.5), usual)
    assert run(probability=0.0) is features


def test_probability_is_that_of_a_batch() -> None:
    torch.manual_seed(0)
    confusor, features = StyleConfusor(probability=0.3), maps(4, 1, 2, 2).float()
    count = sum(confusor(features) is features for _ in range(1000))
    assert 640 < count < 760


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"eps": 0.0}, {"probability": 1.5}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(UserError, match=rf"needs .*, not .*{name}={value}"):
        StyleConfusor(**settings)


@pytest.mark.parametrize("name", ["resnet18", "digits-cnn", "character-cnn", "efficientnet-lite0"])
def test_attached_styles_act_in_training_only_and_come_off_again(name: str) -> None:
    torch.manual_seed(0)
    net = build_backbone(name)
    for module in net.modules():  # batch statistics also change features in training: exclude them
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0
            module.forward = lambda x, bn=module: nn.functional.batch_norm(
                x, bn.running_mean, bn.running_var, bn.weight, bn.bias, eps=bn.eps
            )
    x = torch.rand(4, 3, 32, 32)
    plain = net(x)
    handles = attach_style(net, StyleConfusor)
    assert len(handles) == 3
    assert not torch.allclose(net.train()(x), plain, rtol=1e-3)
    torch.testing.assert_close(net.eval()(x), plain)
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(net.train()(x), plain)


def test_each_stage_gets_its_own_layer() -> None:
    layers: list[nn.Module] = []

    def make() -> nn.Module:
        layers.append(StyleConfusor())
        return layers[-1]

    net = build_backbone("digits-cnn")
    calls: list[int] = []
    attach_style(net, make)
    for i, layer in enumerate(layers):
        layer.register_forward_hook(lambda *_, i=i: calls.append(i))
    net(torch.rand(2, 3, 32, 32))
    assert calls == [0, 1, 2]


def test_a_style_layer_with_weights_is_refused() -> None:
    with pytest.raises(UserError, match="must not have parameters or buffers, but BatchNorm2d has"):
        attach_style(build_backbone("digits-cnn"), lambda: nn.BatchNorm2d(64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_graph_keeps_the_maps_themselves_and_no_copy(dtype: torch.dtype) -> None:
    features = maps(4, 3, 5, 5).to(dtype).requires_grad_()
    out = confuse_style(features, torch.tensor([2, 0, 3, 1]), torch.rand(4))
    saved = [tensor for tensor in out.grad_fn.saved_tensors if tensor.shape == features.shape]  # type: ignore[union-attr]
    assert [tensor.data_ptr() for tensor in saved] == [features.data_ptr()]
