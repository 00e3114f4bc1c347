"""How many steps and images a stage has, and what its batches hold."""

from __future__ import annotations

import pytest
import torch

from builders import PLAIN, labeled_set, unlabeled_set
from ssdg.data.sets import Inputs, MixedSet, concat_labeled
from ssdg.engine.batches import images_per_step, make_stream, steps_per_epoch
from ssdg.methods.api import Method, Settings
from ssdg.methods.semi.fixmatch import FixMatchSettings
from ssdg.methods.source_only import SourceOnly

SMALL, LARGE = labeled_set(range(10), [0] * 10), labeled_set(range(100, 130), [1] * 30, domain=1, trusted=False)
POOL = unlabeled_set(range(200, 220))
THREE = concat_labeled([SMALL, LARGE, labeled_set([250], [2], domain=2, trusted=False)])


@pytest.mark.parametrize(
    ("inputs", "steps", "images"),
    [
        (Inputs(SMALL), 3, 4),  # 10 / 4, rounded up
        (Inputs(SMALL, unlabeled=POOL), 3, 8),  # the smaller of 10 and 20
        (Inputs(LARGE, unlabeled=POOL, ratio=3), 5, 16),
        (Inputs(SMALL, pseudo=LARGE), 8, 8),  # the larger of 10 and 30
        (Inputs(SMALL, pseudo=LARGE, union=True), 10, 4),
        (Inputs(MixedSet(SMALL, LARGE, "mixup", 1.0)), 3, 8),  # two images make one
    ],
)
def test_steps_and_images(inputs: Inputs, steps: int, images: int) -> None:
    settings = Settings(batch=4)  # type: ignore[call-arg]
    assert steps_per_epoch(inputs, settings) == steps
    assert steps_per_epoch(inputs, settings.model_copy(update={"iterations": 7})) == 7
    assert images_per_step(inputs, 4) == images
    drawn = make_stream(inputs, 4, 0, PLAIN).draw(0)
    parts = [part for part in (drawn.labeled, drawn.pseudo, drawn.unlabeled) if part is not None]
    sides = 2 if isinstance(inputs.labeled, MixedSet) else 1
    assert sum(len(part.x) for part in parts) * sides == images


def test_a_balanced_batch_has_as_many_images_of_every_domain() -> None:
    stream = make_stream(Inputs(THREE, balanced=True), 9, 0, PLAIN)
    for step in range(5):
        assert torch.bincount(stream.draw(step).labeled.domain).tolist() == [3, 3, 3]
    uneven = make_stream(Inputs(THREE, balanced=True), 8, 0, PLAIN).draw(0)
    assert torch.bincount(uneven.labeled.domain).tolist() == [3, 3, 2]


def test_every_image_of_a_domain_has_its_turn_in_balanced_batches() -> None:
    stream = make_stream(Inputs(THREE, balanced=True), 6, 0, PLAIN)
    seen = [value for step in range(15) for value in (stream.draw(step).labeled.x[:, 0, 0, 0] * 255).int().tolist()]
    assert {value for value in seen if 100 <= value < 130} == set(range(100, 130))  # 2 · 15 draws of 30
    assert seen.count(250) == 30


def test_a_method_gets_what_it_needs() -> None:
    def inputs(*needs: str, settings: Settings) -> Inputs:
        method = Method("x", "SSL", "", "", SourceOnly, needs=needs)  # type: ignore[arg-type]
        return method.inputs(SMALL, POOL, settings)

    plain = inputs("unlabeled", settings=Settings())  # type: ignore[call-arg]
    assert (plain.balanced, plain.views, plain.ratio) == (False, (), 1)
    rich = inputs("unlabeled", "strong", "second", "balanced", settings=FixMatchSettings(ratio=5))  # type: ignore[call-arg]
    assert (rich.balanced, rich.views, rich.ratio) == (True, ("second", "strong"), 5)
    batch = make_stream(rich, 4, 0, PLAIN).draw(0).unlabeled
    assert batch is not None
    assert batch.second is not None
    assert batch.strong is not None
    assert len(batch.x) == len(batch.second) == len(batch.strong) == 20


def test_all_that_changes_a_batch_changes_the_fingerprint() -> None:
    kinds = [
        Inputs(SMALL),
        Inputs(SMALL, unlabeled=POOL),
        Inputs(SMALL, unlabeled=POOL, ratio=2),
        Inputs(SMALL, unlabeled=POOL, views=("strong",)),
        Inputs(SMALL, pseudo=LARGE),
        Inputs(SMALL, pseudo=LARGE, union=True),
        Inputs(SMALL, balanced=True),
    ]
    assert len({inputs.fingerprint for inputs in kinds}) == len(kinds)
