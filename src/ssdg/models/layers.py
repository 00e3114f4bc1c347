"""Style confusion, gradient reversal, and moving averages of networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from ..devices import onto
from ..errors import UserError
from .common import full_precision


class _CenteredMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.mean((2, 3), keepdim=True)
        centered = x - mean
        ctx.save_for_backward(centered)
        return mean, centered.square().mean((2, 3), keepdim=True), centered

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        by_mean, by_variance, by_centered = grads
        (centered,) = ctx.saved_tensors
        positions = centered.shape[2] * centered.shape[3]
        flat = (by_mean - by_centered.sum((2, 3), keepdim=True)) / positions
        return torch.addcmul(by_centered + flat, centered, by_variance * (2 / positions))


def centered_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and biased variance over positions, (B, C, 1, 1), and x minus the mean.

    Its derivative, like that of `confuse_style`, is written by hand to read the maps few times: forward and backward
    take about a third of the time of torch.var_mean and plain products.
    """
    moments: tuple[Tensor, Tensor, Tensor] = _CenteredMoments.apply(x)  # type: ignore[no-untyped-call]
    return moments


class _Restyle(torch.autograd.Function):
    """Mix styles, given maps, a permutation, λ of shape (B, 1, 1, 1), ε and `detach`.

    The graph saves the input maps, which the preceding layer saves anyway; the backward pass centers them again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shuffled: Tensor, lam: Tensor, eps: float, detach: bool) -> Tensor:
        maps = full_precision(x)
        mean = maps.mean((2, 3), keepdim=True)
        centered = maps - mean if maps is x else maps.sub_(mean)
        variance = centered.square().mean((2, 3), keepdim=True)
        # The root has an infinite slope at zero: a dead channel gets deviation ε and no gradient.
        deviation = variance.clamp_min(eps**2).sqrt()
        beta = lam * mean + (1 - lam) * mean[shuffled]
        gamma = lam * deviation + (1 - lam) * deviation[shuffled]
        scale = gamma / (deviation + eps)
        ctx.save_for_backward(x, mean, scale, deviation, variance >= eps**2, shuffled, lam)
        ctx.eps, ctx.detach = eps, detach
        return torch.addcmul(beta, centered, scale).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, mean, scale, deviation, is_alive, shuffled, lam = ctx.saved_tensors
        by_out = full_precision(grads[0])
        if ctx.detach:
            return (by_out * scale).to(grads[0].dtype), None, None, None, None
        maps = full_precision(x)
        centered = maps - mean if maps is x else maps.sub_(mean)  # as in `forward`
        positions = centered.shape[2] * centered.shape[3]
        takers = shuffled.argsort()  # the sample that received the style of sample i
        by_beta, by_scale = by_out.sum((2, 3), keepdim=True), (by_out * centered).sum((2, 3), keepdim=True)
        by_gamma = by_scale / (deviation + ctx.eps)
        by_mean = lam * by_beta + ((1 - lam) * by_beta)[takers] - scale * by_beta  # the last term is from centering
        by_deviation = lam * by_gamma + ((1 - lam) * by_gamma)[takers] - scale * by_gamma
        by_square = is_alive * by_deviation / deviation  # gradient of half a position's square
        buffer = None if by_out is grads[0] else by_out  # the float32 copy may be overwritten
        by_x = torch.addcmul(by_mean / positions, by_out, scale, out=buffer)
        return by_x.addcmul_(centered, by_square / positions).to(grads[0].dtype), None, None, None, None


def confuse_style(
    features: Tensor, shuffled: Tensor, mix: Tensor, *, eps: float = 1e-6, detach: bool = False
) -> Tensor:
    """Give the maps of sample i a style between its own and that of sample `shuffled[i]`.

    Equations transformation_params and transform of the paper, for every sample and channel:
    β = λμ + (1-λ)μ̃, γ = λσ + (1-λ)σ̃, F̂ = γ (F - μ) / (σ + ε) + β.

    `features` (B, C, h, w); `shuffled` (B,) a permutation of the batch; `mix` (B,) λ in [0, 1].
    σ is the biased standard deviation over the h·w positions: that of instance normalization, which the
    paper calls the style, and it is defined (zero) for a map of one position.
    With `detach`, no gradient flows through μ and σ. Statistics are in float32 or better; the result has the
    dtype of `features`. It can be differentiated once.
    """
    if features.ndim != 4:
        raise UserError(f"style confusion needs maps of shape (B, C, h, w), not {tuple(features.shape)}")
    lam = mix.to(torch.promote_types(features.dtype, torch.float32)).view(-1, 1, 1, 1)
    out: Tensor = _Restyle.apply(features, shuffled, lam, eps, detach)  # type: ignore[no-untyped-call]
    return out


class StyleConfusor(nn.Module):
    """`confuse_style` with a new permutation and λ ~ Beta(alpha, alpha) per sample; identity in evaluation mode.

    `probability` is the chance that a batch is confused at all. Random numbers come from torch's global CPU
    generator, whatever the device of the features. The layer has no parameters.
    """

    def __init__(self, alpha: float = 0.5, probability: float = 1.0, eps: float = 1e-6, detach: bool = False) -> None:
        super().__init__()
        if alpha <= 0 or eps <= 0 or not 0 <= probability <= 1:
            raise UserError(
                f"a style confusor needs alpha > 0, eps > 0 and probability in [0, 1], "
                f"not alpha={alpha}, eps={eps}, probability={probability}"
            )
        self.alpha, self.probability, self.eps, self.detach = alpha, probability, eps, detach

    def forward(self, features: Tensor) -> Tensor:
        """Confuse the styles of (B, C, h, w); shape and dtype stay the same."""
        if not self.training or (self.probability < 1 and torch.rand(()).item() >= self.probability):
            return features
        size = len(features)
        # float64, because a Beta with small alpha concentrates near 0 and 1
        alpha = torch.full((size,), self.alpha, dtype=torch.float64)
        mix = onto(torch.distributions.Beta(alpha, alpha).sample(), features.device)
        shuffled = onto(torch.randperm(size), features.device)
        return confuse_style(features, shuffled, mix, eps=self.eps, detach=self.detach)

    def extra_repr(self) -> str:
        """Return the settings for `print(net)`."""
        return f"alpha={self.alpha}, probability={self.probability}, eps={self.eps}, detach={self.detach}"


@dataclass
class StyleHook:
    """Forward hook that applies `layer` to a stage's output, in the training mode of that stage.

    It is an object and not a closure, so that a network with style layers can be pickled and deep-copied.
    """

    layer: nn.Module

    def __call__(self, stage: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return the new output of the stage."""
        self.layer.train(stage.training)
        return self.layer(output)  # type: ignore[no-any-return]


def attach_style(
    backbone: nn.Module, make_confusor: Callable[[], nn.Module], num_stages: int = 3
) -> list[RemovableHandle]:
    """Add a layer after each of the first `num_stages` of the backbone's `style_stages`; `handle.remove()` undoes it.

    The layers are forward hooks: state-dict keys and parameters of the backbone do not change, so a layer that has
    parameters or buffers is an error.
    """
    handles = []
    stages: tuple[nn.Module, ...] = backbone.style_stages  # type: ignore[assignment]
    for stage in stages[:num_stages]:
        layer = make_confusor()
        if layer.state_dict():
            raise UserError(f"a style layer must not have parameters or buffers, but {type(layer).__name__} has")
        handles.append(stage.register_forward_hook(StyleHook(layer)))
    return handles


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficient: float) -> Tensor:
        ctx.coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.coefficient * grads[0], None


def reverse_gradient(x: Tensor, coefficient: float = 1.0) -> Tensor:
    """Return `x`; multiply its gradient by -coefficient (the gradient reversal layer of DANN, Ganin et al., 2016)."""
    out: Tensor = _ReverseGradient.apply(x, coefficient)  # type: ignore[no-untyped-call]
    return out


@contextmanager
def double_batch_norm_update(net: nn.Module) -> Iterator[None]:
    """Let forward passes inside update the running statistics of batch norms as two equal passes would.

    For a pass whose graph serves two losses: r ← (1-m)² r + (1 - (1-m)²) s equals two updates with statistic s.
    """
    norms = [(n, n.momentum) for n in net.modules() if isinstance(n, _BatchNorm) and n.momentum is not None]
    for norm, momentum in norms:
        norm.momentum = 1 - (1 - momentum) ** 2
    try:
        yield
    finally:
        for norm, momentum in norms:
            norm.momentum = momentum


class EMA(nn.Module):
    """Exponential moving average of a network: θ' ← d θ' + (1 - d) θ at each `update`.

    It starts as an exact copy of the network, so early averages depend on the initial weights: pass a smaller `decay`
    to `update` during warm-up. Buffers (batch-norm statistics) are averaged like parameters; integer buffers are
    copied. The average takes no gradient and stays in evaluation mode regardless of `train()`.
    """

    def __init__(self, net: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        if not 0 <= decay <= 1:
            raise UserError(f"the decay of a moving average must be in [0, 1], not {decay}")
        self.decay = decay
        self.average = deepcopy(net).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, net: nn.Module, decay: float | None = None) -> None:
        """Move toward `net`; `decay` overrides the default of the constructor for this update."""
        decay = self.decay if decay is None else decay
        current = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        for name, average in [*self.average.named_parameters(), *self.average.named_buffers()]:
            if average.is_floating_point():
                average.lerp_(current[name].to(average.dtype), 1 - decay)
            else:
                average.copy_(current[name])

    def train(self, mode: bool = True) -> EMA:
        """Set the mode of this wrapper only; the average stays in evaluation mode."""
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Apply the averaged network."""
        return self.average(x)  # type: ignore[no-any-return]
