"""The embedded web search: what the keywords 0 to 9 might find, some of it filed wrongly, some of it no digit.

It lies beside copies of the four embedded digits and shares no image, hand-written digit or photograph with them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...seeds import numpy_rng
from .digits import Photos, Progress, digits_root, made_root, photo_files, save_arrays
from .glyphs import NUM_CLASSES, SIDE, usable_fonts
from .web_rendering import Supplies, draw_digit, draw_letter, draw_photo, draw_symbol

VERSION = 1  # of the recipe: raise it when the same sources give other pixels
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
STRANGERS = (draw_letter, draw_symbol, draw_photo)


def web_digits_root(cache: Path, seed: int = 0, progress: Progress | None = None) -> Path:
    """The folder of the four embedded digits and `web.npz`, made on the first call.

    `web.npz` holds `images` (n, 32, 32, 3) uint8, `web_labels` (n,) int64, the keyword of each, and `labels` (n,)
    int64, the digit it shows or -1. The folder's name begins with `web-` and the name of the digits' folder.
    """
    others = digits_root(cache, seed, progress)
    fonts, photos, tell = usable_fonts(), photo_files(PHOTOS), progress or (lambda line: None)
    recipe = f"web-{others.name}-v{VERSION}"

    def make(folder: Path) -> None:
        tell("making the embedded digits: web")
        shutil.copytree(others, folder)
        keywords, truth = search_results(seed)
        images = render_results(truth, Supplies.of(fonts, photos), seed)
        save_arrays(folder / "web.npz", images=images, web_labels=keywords, labels=truth)

    return made_root(cache, recipe, [*fonts, *photos], make)


def search_results(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keyword and digit shown, NO_DIGIT for none, of every image in random order.

    Every keyword has as many images of no digit, and the same number of wrong digits or one more; the wrong
    digits are the nine others in turn.
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


def render_results(truth: NDArray[np.int64], supplies: Supplies, seed: int) -> NDArray[np.uint8]:
    """An image for every digit of `truth`; for NO_DIGIT letters, symbols and photographs in turn.

    No keyword comes in, so nothing in an image can tell whether it was filed wrongly.
    """
    rng = numpy_rng("web-digits", seed, "pixels")
    images = np.empty((len(truth), SIDE, SIDE, 3), np.uint8)
    strangers = 0
    for row, digit in enumerate(truth.tolist()):
        if digit == NO_DIGIT:
            images[row] = STRANGERS[strangers % len(STRANGERS)](supplies, rng)
            strangers += 1
        else:
            images[row] = draw_digit(digit, supplies, rng)
    return images
