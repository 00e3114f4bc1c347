"""Labeling and evaluation in bfloat16 where a sample keeps its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ssdg.data.sets import ImageTable
from ssdg.data.streams import Pipeline
from ssdg.engine.pipelines import image_pipeline
from ssdg.engine.scores import all_logits
from ssdg.machine import Machine, start_machine
from ssdg.methods.api import Settings, Sizes
from ssdg.methods.source_only import SourceOnly
from ssdg.models.backbones import build_backbone

FP32 = Pipeline("none", torch.device("cpu"), 2)
BF16 = replace(FP32, inference="bf16")
LOG: list[tuple[bool, int]] = []  # of every forward pass: whether under autocast, and its images


class Sum(nn.Module):
    """The mean of an image, rounded under autocast."""

    num_features, min_size, prefers_bf16, style_stages = 1, 1, False, ()

    def maps(self, x: Tensor) -> Tensor:
        return self(x)

    def forward(self, x: Tensor) -> Tensor:
        is_half = torch.is_autocast_enabled("cpu")
        LOG.append((is_half, len(x)))
        mean = x.mean((1, 2, 3))[:, None]
        return mean.bfloat16().float() if is_half else mean


@dataclass(eq=False)
class Bright:
    """Light if the mean exceeds `limit`."""

    limit: float
    nets: nn.ModuleDict = field(default_factory=lambda: nn.ModuleDict({"sum": Sum()}))
    opts: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Tensor) -> Tensor:
        mean = self.nets["sum"](x)
        return torch.cat([torch.full_like(mean, self.limit), mean], 1)[None]


@pytest.fixture(autouse=True)
def _clear() -> None:
    LOG.clear()


def table_of(count: int) -> ImageTable:
    values = (np.arange(count) % 251).astype(np.uint8)[:, None, None, None]
    return ImageTable.from_array(np.ascontiguousarray(np.broadcast_to(values, (count, 4, 4, 3))))


# 70 / 255 = 0.27451 becomes 0.27539 in bfloat16: a limit between them gives image 70, in batch 2, another class.
CHANGES, KEEPS = 0.275, 2.0


def test_where_the_sample_keeps_its_answers_all_logits_are_of_bfloat16() -> None:
    table = table_of(700)
    logits = all_logits(Bright(KEEPS), table, BF16, batch=32)  # type: ignore[arg-type]
    assert logits.shape == (1, 700, 2)
    exact = torch.arange(700) % 251 / 255
    assert torch.equal(logits[0, :, 1], exact.bfloat16().float())
    assert sum(count for is_half, count in LOG if is_half) == 700
    assert sum(count for is_half, count in LOG if not is_half) == 256  # of the sample, not computed a third time


def test_a_network_whose_answers_change_is_computed_in_float32() -> None:
    table = table_of(700)
    logits = all_logits(Bright(CHANGES), table, BF16, batch=32)  # type: ignore[arg-type]
    assert torch.equal(logits, all_logits(Bright(CHANGES), table, FP32, batch=32))  # type: ignore[arg-type]
    assert sum(count for is_half, count in LOG if is_half) == 256
    assert sum(count for is_half, count in LOG if not is_half) == 2 * 700


@pytest.mark.parametrize(("count", "pipeline"), [(511, BF16), (700, FP32)])
def test_small_sets_and_fp32_compute_every_image_once_in_float32(count: int, pipeline: Pipeline) -> None:
    logits = all_logits(Bright(KEEPS), table_of(count), pipeline, batch=32)  # type: ignore[arg-type]
    assert [(False, len(part)) for part in torch.arange(count).split(32)] == LOG
    torch.testing.assert_close(logits[0, :, 1], torch.arange(count) % 251 / 255)


def test_fp32_has_the_bits_of_batches_of_128() -> None:
    torch.manual_seed(0)
    learner = SourceOnly(lambda: build_backbone("efficientnet-lite0"), Sizes(3), Settings())
    images = np.random.default_rng(0).integers(0, 256, (160, 96, 96, 3), np.uint8)
    table = ImageTable.from_array(images)
    assert torch.equal(all_logits(learner, table, FP32), all_logits(learner, table, FP32, batch=128))


def test_the_same_weights_and_images_choose_alike_and_weights_stay() -> None:
    torch.manual_seed(0)
    learner = SourceOnly(lambda: build_backbone("digits-cnn"), Sizes(3), Settings())
    images = np.random.default_rng(0).integers(0, 256, (600, 32, 32, 3), np.uint8)
    table = ImageTable.from_array(images)
    before = {name: tensor.clone() for name, tensor in learner.nets.state_dict().items()}
    first = all_logits(learner, table, BF16, batch=32)
    assert torch.equal(first, all_logits(learner, table, BF16, batch=32))
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.nets.state_dict().items())
    exact = all_logits(learner, table, FP32, batch=32)
    torch.testing.assert_close(first, exact, rtol=0.05, atol=0.05)


@dataclass
class Config:
    inference: str
    augment: str = "photo"


@pytest.mark.parametrize(
    ("inference", "precision", "expected"),
    [("bf16", "fp32", "bf16"), ("fp32", "fp32", "fp32"), ("bf16", "bf16", "fp32"), ("auto", "fp32", "fp32")],
)
def test_only_fp32_runs_that_may_compute_in_bf16_choose(inference: str, precision: str, expected: str) -> None:
    machine: Machine = start_machine("cpu", precision)
    assert image_pipeline(Config(inference), 3, machine).inference == expected  # type: ignore[arg-type]
