"""Compare scores for OOD detection: AUROC of candidates, for trained runs on digits.

    python benchmarks/unknown_scores.py runs/*-syn-mnist

The OOD images are those of the embedded crawl `web-digits`; the known images are its digits and those of `mnist`. The
last column measures whether correctly classified digits of `mnist` score above misclassified ones. Unreadable runs
are reported and skipped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ssdg.artifact.calibration import known_scores
from ssdg.artifact.load import Model, load_model
from ssdg.data.embedded.web_digits import web_digits_root
from ssdg.engine.scores import mean_probs
from ssdg.engine.setup import default_cache
from ssdg.errors import UserError
from ssdg.inference.rejection import auroc

CANDIDATES = {
    "maximum of the mean softmax": lambda logits: mean_probs(logits).max(-1).values.numpy(),
    "entropy of the mean softmax": lambda logits: -torch.special.entr(mean_probs(logits)).sum(-1).numpy(),
    "energy": lambda logits: logits.logsumexp(-1).mean(0).numpy(),
    "kl-from-uniform": known_scores,
}
Images = NDArray[np.uint8]


def logits_of(model: Model, images: Images) -> Tensor:
    """(networks, n, K)."""
    return torch.cat([model.logits(images[at : at + 250]) for at in range(0, len(images), 250)], dim=1)


def measure(model: Model, root: Path) -> dict[str, list[float]]:
    """For every candidate: AUROC in percent against the crawl's digits, against mnist, and of right against wrong."""
    web, mnist = np.load(root / "web.npz"), np.load(root / "mnist.npz")
    logits_web, logits_mnist = logits_of(model, web["images"]), logits_of(model, mnist["images"])
    right, known = logits_mnist.softmax(-1).mean(0).argmax(-1).numpy() == mnist["labels"], web["labels"] >= 0
    aurocs = {}
    for name, score in CANDIDATES.items():
        of_web, of_mnist = score(logits_web), score(logits_mnist)
        pairs = (of_web[known], of_web[~known]), (of_mnist, of_web[~known]), (of_mnist[right], of_mnist[~right])
        aurocs[name] = [100 * auroc(*pair) for pair in pairs]
    return aurocs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, default=default_cache())
    args = parser.parse_args()
    root, rows = web_digits_root(args.cache), []
    for run in args.runs:
        try:
            rows.append(measure(load_model(run, "cpu"), root))
        except UserError as error:
            print(f"left out: {error}")
    print(f"{len(rows)} runs: mean (lowest) AUROC, % | web known | mnist known | mnist right")
    for name in CANDIDATES:
        columns = zip(*(row[name] for row in rows), strict=True)
        print(f"{name:<28}" + "".join(f"  {np.mean(column):.1f} ({min(column):.1f})" for column in columns))


if __name__ == "__main__":
    main()
