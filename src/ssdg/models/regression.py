"""Softmax regression by L-BFGS: deterministic, with scikit-learn's penalty."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UserError

TOLERANCE = 1e-6  # largest gradient component at which the solver stops
HISTORY = 30  # updates that approximate the curvature; with 10 it takes half as many steps again


def softmax_regression(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, c: float, max_iter: int
) -> tuple[Tensor, Tensor, float]:
    """Minimize mean cross-entropy + |W|² / (2 c n) over W (K, features) and b (K,), starting from those passed.

    x is (n, features), y is (n,) classes or (n, K) soft labels. Multiplied by c n, this is the objective of
    scikit-learn's LogisticRegression with C = c. The bias is not penalized. Returns W, b and the objective.
    """
    if not len(x):
        raise UserError("softmax regression needs at least one image")
    w, b = weight.detach().clone().requires_grad_(), bias.detach().clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [w, b],
        max_iter=max_iter,
        history_size=HISTORY,
        tolerance_grad=TOLERANCE,
        tolerance_change=0,  # the default stops where steps are still worth a point of accuracy
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, w, b), y) + w.square().sum() / (2 * c * len(x))
        torch.autograd.backward(loss)
        return loss

    with torch.enable_grad():
        solver.step(objective)  # type: ignore[no-untyped-call]
        final = float(objective().detach())
    return w.detach(), b.detach(), final
