"""The probe: one linear layer on unit features, solved and not descended."""

from __future__ import annotations

import pytest
import torch
from recording import LABELED, TASK, Recorder, images_of, random_logits
from torch import Tensor

from builders import HARD, LABELS, X, at_epoch, batch, built, state
from ssdg.methods.frozen.probe import Probe, ProbeSettings, fit, whole_inputs
from ssdg.models.heads import UnitHead

ANY = at_epoch(0)


def unit_features(probe: Probe) -> Tensor:
    features = probe.backbone(X).detach()
    return features / features.square().sum(1, keepdim=True).sqrt()


def test_the_head_of_a_probe_by_hand() -> None:
    head = UnitHead(2, 2)
    assert not any(parameter.any() for parameter in head.parameters())  # starts at zero
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[5.0, 0.0], [0.0, 10.0]]))
        head.bias.copy_(torch.tensor([1.0, -1.0]))
    # (3, 4) / 5 = (0.6, 0.8)
    torch.testing.assert_close(head(torch.tensor([[3.0, 4.0], [30.0, 40.0]])), torch.tensor([[4.0, 7.0]] * 2))
    assert head(torch.zeros(1, 2)).tolist() == [[1.0, -1.0]]
    assert head(torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("y", LABELS)
def test_a_step_solves_the_regression(y: str) -> None:
    """The gradient of the mean cross-entropy and of |W|^2 / (2 c n) vanishes."""
    probe = built(Probe, ProbeSettings(c=2.0))
    probe.step(batch(LABELS[y]), ANY)
    x = unit_features(probe)
    target = LABELS[y] if y == "soft" else torch.eye(3, dtype=torch.float64)[HARD]
    weight, bias = probe.head.weight.detach(), probe.head.bias.detach()
    errors = (x @ weight.T + bias).softmax(1) - target
    by_weight = errors.T @ x / len(x) + weight / (2.0 * len(x))
    assert by_weight.abs().max() < 1e-5
    assert errors.mean(0).abs().max() < 1e-5
    assert weight.abs().max() > 0.01  # not where it started


def test_a_step_changes_the_head_alone_and_returns_the_objective() -> None:
    probe = built(Probe, ProbeSettings(), norm=True)
    before = state(probe.backbone.eval())
    before = {name: value.clone() for name, value in before.items()}
    scalars = probe.step(batch(), ANY)
    assert all(torch.equal(value, before[name]) for name, value in state(probe.backbone).items())
    log_probs = probe.logits(X)[0].log_softmax(1)
    penalty = probe.head.weight.square().sum() / (2 * 10.0 * len(X))
    expected = -log_probs[torch.arange(len(X)), HARD].mean() + penalty
    assert float(scalars["loss"]) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert all(not value.requires_grad for value in scalars.values())


def test_logits_have_one_network_and_ignore_the_length_of_features() -> None:
    probe = built(Probe, ProbeSettings())
    probe.step(batch(), ANY)
    logits = probe.logits(X)
    assert logits.shape == (1, len(X), 3)
    expected = unit_features(probe) @ probe.head.weight.T + probe.head.bias
    torch.testing.assert_close(logits[0], expected)


def test_more_iterations_and_a_weaker_penalty_fit_better() -> None:
    def loss(**settings: float) -> float:
        probe = built(Probe, ProbeSettings(**settings))  # type: ignore[arg-type]
        probe.step(batch(), ANY)
        return float(torch.nn.functional.cross_entropy(probe.logits(X)[0].detach(), HARD))

    assert loss(c=100.0) < loss(c=1.0) < loss(c=0.01)
    assert loss(max_iter=200) < loss(max_iter=1)


def test_the_second_epoch_starts_from_the_first() -> None:
    probe = built(Probe, ProbeSettings())
    first = float(probe.step(batch(), ANY)["loss"])
    weight = probe.head.weight.detach().clone()
    assert float(probe.step(batch(), ANY)["loss"]) <= first + 1e-9
    torch.testing.assert_close(probe.head.weight, weight, atol=1e-2, rtol=0)


def test_the_method_is_one_stage_on_the_whole_labeled_domain() -> None:
    recorder = Recorder(random_logits)
    product = fit(TASK, recorder, recorder.build, ProbeSettings())  # type: ignore[arg-type]
    assert recorder.order() == [("train", "main", 1)]
    (main,) = recorder.trained("main")
    assert main["labeled"] is LABELED
    assert main["whole"]
    assert main["product"]
    assert product.kind is Probe  # type: ignore[attr-defined]


def test_a_large_set_is_thinned_out() -> None:
    inputs = whole_inputs(LABELED, ProbeSettings(max_images=2))
    assert images_of(inputs.labeled) == [10, 30]
    assert inputs.whole
    assert whole_inputs(LABELED, ProbeSettings(max_images=3)).labeled is LABELED
