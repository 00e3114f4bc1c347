"""Embedded web crawl: simulated search results for the keywords 0 to 9, some mislabeled, some showing no digit.

Its folder also has copies of the four embedded digits domains, with which it shares no image, handwritten digit or
photograph.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...seeds import numpy_rng
from .digits import Photos, Progress, build_once, digits_root, find_photos, save_arrays
from .glyphs import NUM_CLASSES, SIDE, find_fonts
from .web_rendering import Assets, draw_digit, draw_letter, draw_photo, draw_symbol

VERSION = 1  # of the recipe: increment it when the same sources give other pixels
PER_KEYWORD = 250
OOD_RATE = 0.16  # of all images
WRONG_RATE = 0.15  # of the images that show a digit
NO_DIGIT = -1
PHOTOS: Photos = (
    ("skimage", "data/brick.png"),
    ("skimage", "data/camera.png"),
    ("skimage", "data/grass.png"),
    ("skimage", "data/hubble_deep_field.jpg"),
    ("skimage", "data/ihc.png"),
    ("skimage", "data/retina.jpg"),
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
)
OOD_RENDERERS = (draw_letter, draw_symbol, draw_photo)


def web_digits_root(cache: Path, seed: int = 0, progress: Progress | None = None) -> Path:
    """Return the folder of the four embedded digits domains and `web.npz`; generate it on the first call.

    `web.npz` contains `images` (n, 32, 32, 3) uint8, `web_labels` (n,) int64, the keyword of each image, and `labels`
    (n,) int64, the digit it shows or -1. The folder's name starts with `web-` and the name of the digits' folder.
    """
    digits = digits_root(cache, seed, progress)
    fonts, photos, report = find_fonts(), find_photos(PHOTOS), progress or (lambda line: None)
    recipe = f"web-{digits.name}-v{VERSION}"

    def build(folder: Path) -> None:
        report("generating the embedded digits: web")
        shutil.copytree(digits, folder, dirs_exist_ok=True)
        keywords, truth = draw_labels(seed)
        images = render_results(truth, Assets.load(fonts, photos), seed)
        save_arrays(folder / "web.npz", images=images, web_labels=keywords, labels=truth)

    return build_once(cache, recipe, [*fonts, *photos], build)


def draw_labels(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keyword and the digit shown (NO_DIGIT for none) of every image, in random order.

    Every keyword has the same number of images without a digit, and the same number of wrong digits or one more; the
    wrong digits cycle through the nine others.
    """
    rng = numpy_rng("web-digits", seed, "labels")
    num_ood = round(OOD_RATE * PER_KEYWORD)
    least, more = divmod(round(WRONG_RATE * NUM_CLASSES * (PER_KEYWORD - num_ood)), NUM_CLASSES)
    num_wrong = least + (rng.permutation(NUM_CLASSES) < more)
    truth = np.repeat(np.arange(NUM_CLASSES), PER_KEYWORD).reshape(NUM_CLASSES, PER_KEYWORD)
    for keyword, row in enumerate(truth):
        wrong = np.resize(rng.permutation(np.delete(np.arange(NUM_CLASSES), keyword)), num_wrong[keyword])
        row[:num_ood] = NO_DIGIT
        row[num_ood : num_ood + len(wrong)] = wrong
    keywords = np.repeat(np.arange(NUM_CLASSES), PER_KEYWORD)
    order = rng.permutation(len(keywords))
    return keywords[order], truth.ravel()[order]


def render_results(truth: NDArray[np.int64], assets: Assets, seed: int) -> NDArray[np.uint8]:
    """Render an image for every digit of `truth`; for NO_DIGIT letters, symbols and photographs in turn.

    Keywords are no input, so nothing in an image can reveal that it is mislabeled.
    """
    rng = numpy_rng("web-digits", seed, "pixels")
    images = np.empty((len(truth), SIDE, SIDE, 3), np.uint8)
    num_ood = 0
    for row, digit in enumerate(truth.tolist()):
        if digit == NO_DIGIT:
            images[row] = OOD_RENDERERS[num_ood % len(OOD_RENDERERS)](assets, rng)
            num_ood += 1
        else:
            images[row] = draw_digit(digit, assets, rng)
    return images
