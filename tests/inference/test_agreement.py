"""The rule that chooses bfloat16, on constructed answers, sets and streams."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssdg.cli import call
from ssdg.data.sources.decode import ResizeMode
from ssdg.data.sources.tree import Item
from ssdg.inference import stream
from ssdg.inference.agreement import MIN_AGREEMENT, SAMPLE, StreamRule, agreement, decide, sample_batches
from ssdg.inference.classifier import Answer
from ssdg.inference.rejection import Rejection
from ssdg.inference.stream import Job, answer_all, classify, predict_batches


def answer_of(classes: list[int], scores: list[float] | None = None) -> Answer:
    probs = np.eye(3)[classes]
    return Answer(probs, None if scores is None else np.array(scores), probs.argmax(1)[None])


def test_agreement_by_hand() -> None:
    exact = answer_of([0, 1, 2, 0], [0.1, 0.2, 0.3, 0.4])
    assert agreement(exact, exact, 0.25) == 1
    assert agreement(exact, answer_of([0, 1, 2, 1])) == 0.75
    # A score on the other side of the threshold is another answer, with a threshold only.
    moved = answer_of([0, 1, 2, 0], [0.1, 0.26, 0.3, 0.4])
    assert agreement(exact, moved) == 1
    assert agreement(exact, moved, 0.25) == 0.75
    # So is another vote of one network, although the mean stays.
    assert agreement(exact, replace(exact, votes=np.array([[0, 1, 2, 1]]))) == 0.75


def test_the_bound() -> None:
    assert decide(MIN_AGREEMENT) == "bf16"
    assert decide(255 / 256) == "fp32"


def test_a_sample_is_spread_over_the_set_and_small_sets_have_none() -> None:
    assert sample_batches(2 * SAMPLE - 1, 32) == []
    assert sample_batches(2 * SAMPLE, 32) == [0, 2, 4, 6, 8, 10, 12, 14]
    indices = sample_batches(10_000, 32)
    assert len(indices) * 32 == SAMPLE
    assert indices[-1] > 0.8 * 10_000 / 32
    assert max(indices) * 32 + 32 <= 10_000  # whole batches


@dataclass
class Grey:
    """Dark or light, by the first pixel; those of `flipped` values get the other class in the faster precision."""

    is_exact: bool = True
    flipped: frozenset[int] = frozenset()
    log: list[tuple[bool, int]] = field(default_factory=list)  # of every image: whether exact, its value
    has_faster: bool = True
    classes: tuple[str, ...] = ("dark", "light")
    size: int = 8
    resize: ResizeMode = "squash"
    batch: int = 32
    rejection: Rejection | None = None
    dies_after: int = 10**9

    @property
    def faster(self) -> Grey | None:
        return replace(self, is_exact=False) if self.has_faster and self.is_exact else None

    def free_bytes(self) -> int:
        return 1 << 30

    def answer(self, images: np.ndarray) -> Answer:
        values = images[:, 0, 0, 0].astype(int)
        if len(self.log) + len(values) > self.dies_after:
            raise KeyboardInterrupt
        self.log += [(self.is_exact, int(value)) for value in values]
        light = values / 255
        if not self.is_exact:
            light = np.where([value in self.flipped for value in values], 1 - light, light + 0.001)
        return Answer(np.stack([1 - light, light], 1), votes=(light > 0.5).astype(np.int64)[None])


def pixels(values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values.astype(np.uint8)[:, None, None, None], (len(values), 8, 8, 3))


@pytest.mark.parametrize(("flipped", "chosen"), [((), "bf16"), ((0,), "fp32"), ((40,), "bf16")])
def test_a_set_is_computed_in_the_chosen_precision_and_no_image_three_times(
    flipped: tuple[int, ...], chosen: str
) -> None:
    """Value 0 is in the first batch, which is of the sample; value 40 is in the second, which is not."""
    values = np.arange(700) % 200
    values[200:][np.isin(values[200:], flipped)] = 7  # only once each
    classifier = Grey(flipped=frozenset(flipped))
    answer = answer_all(classifier, lambda rows: pixels(values[rows]), len(values))
    plain = Grey(has_faster=False)
    exact = answer_all(plain, lambda rows: pixels(values[rows]), len(values))
    assert len(plain.log) == 700
    assert len(classifier.log) == 700 + SAMPLE
    shift = 0.001 if chosen == "bf16" else 0
    is_same = ~np.isin(values, flipped)
    np.testing.assert_allclose(answer.probs[is_same, 1], exact.probs[is_same, 1] + shift, atol=1e-9)


def test_a_small_set_is_computed_in_float32() -> None:
    values = np.arange(2 * SAMPLE - 1) % 200
    classifier = Grey()
    answer_all(classifier, lambda rows: pixels(values[rows]), len(values))
    assert classifier.log == [(True, value) for value in values.tolist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of values 0, 1, ..., 199 three and a half times."""
    path = tmp_path_factory.mktemp("grey")
    for number in range(700):
        Image.new("RGB", (8, 8), (number % 200,) * 3).save(path / f"{number:03}.png")
    (path / "300.png").write_bytes(b"broken")
    return path


def items(folder: Path, count: int) -> list[Item]:
    return [Item(path.name, str(path)) for path in sorted(folder.iterdir())[:count]]


@pytest.mark.parametrize(("flipped", "is_exact"), [((), False), ((199,), True)])
def test_a_stream_decides_from_its_second_256_images(flipped: tuple[int, ...], is_exact: bool, folder: Path) -> None:
    classifier = Grey(flipped=frozenset(flipped))
    rows = [row for part in predict_batches(classifier, items(folder, 700), batch=100) for row in part]
    assert [row.path for row in rows] == [f"{number:03}.png" for number in range(700)]
    assert [row.path for row in rows if row.error] == ["300.png"]
    exact = [value for kept, value in classifier.log if kept]
    rounded = [value for kept, value in classifier.log if not kept]
    # Batches of 100: three before the sample, 3 of the sample (one image is broken), one behind it.
    assert len(exact) == (699 if is_exact else 599)
    assert len(rounded) == (299 if is_exact else 399)
    assert rounded[0] == 101  # image 301
    shift = 0 if is_exact else 0.001
    assert rows[-1].confidence == pytest.approx(1 - 99 / 255 - shift, abs=1e-9)


def test_a_short_stream_is_computed_once_in_float32(folder: Path) -> None:
    classifier = Grey()
    list(predict_batches(classifier, items(folder, SAMPLE), batch=64))
    assert len(classifier.log) == SAMPLE
    assert all(is_exact for is_exact, _ in classifier.log)


@pytest.mark.parametrize("dies_after", [150, 450, 800, 920])
@pytest.mark.parametrize("flipped", [(), (199,)])
def test_a_resumed_prediction_makes_the_same_decision(
    flipped: tuple[int, ...], dies_after: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the decision, which takes 300 images in float32 and 299 in both, it starts over."""
    monkeypatch.setattr(stream, "digest_of", lambda model, plugin: "")

    def job(name: str) -> Job:
        return Job(Path("model"), (str(folder),), tmp_path / name, batch=50)

    whole = Grey(flipped=frozenset(flipped))
    classify(job("whole.csv"), whole, None, lambda counts: None)
    with pytest.raises(KeyboardInterrupt):
        classify(job("out.csv"), Grey(flipped=frozenset(flipped), dies_after=dies_after), None, lambda counts: None)
    resumed = Grey(flipped=frozenset(flipped))
    classify(job("out.csv"), resumed, None, lambda counts: None)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert len(resumed.log) == (100 if dies_after > 300 + 2 * 299 else len(whole.log))


def test_an_unknown_precision_is_refused_in_one_sentence(model: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    image = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(image)
    command = ["predict", str(model), str(image), "-o", str(tmp_path / "out.csv"), "--precision"]
    assert "unknown precision 'bf61' (did you mean 'bf16'?); choose from auto, fp32, bf16" in complaint(
        *command, "bf61"
    )
    assert "an exported file computes in its own precision" in complaint(*command, "bf16")
    assert "unknown precision 'half'" in complaint(
        "evaluate", str(model), "--data", str(tmp_path), "--precision", "half"
    )
    assert call([*command, "auto"]) == 0


def test_a_rule_with_one_precision_is_decided_at_once() -> None:
    assert stream.new_rule(Grey(has_faster=False)).decision == "fp32"
    assert stream.new_rule(Grey()).decision is None
    assert not StreamRule(None).is_sampling
