"""What is run in a clean environment with one extra installed, and which extra is next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from PIL import Image, ImageDraw

TINY = "backbone=digits-cnn weights=none size=32 augment=none epochs=1 batch=4 iterations=2"
LABELER = "cycles=1 labeler.epochs=1 labeler.batch=4 labeler.iterations=2"
FOLDERS = "--labeled images/photo --unlabeled images/sketch --target images/night"
# Products of one environment with torch that the environments without it use: a run, an ONNX file, a benchmark.
PREPARE = (
    f"ssdg train {FOLDERS} --out runs/tiny --preset quick {TINY} {LABELER}",
    "ssdg export runs/tiny --format onnx -o tiny.onnx",
    "printf 'data: images\\nmethods: [eid]\\ntasks: [photo:night]\\n' > suite.yaml",
    f"ssdg bench suite.yaml --preset quick --out bench --jobs 1 {TINY} {LABELER}",
)
NO_TORCH = "python -c \"import importlib.util as u; assert u.find_spec('torch') is None, 'torch is installed'\""


@dataclass(frozen=True)
class Trial:
    """The commands that show that an extra is complete."""

    commands: tuple[str, ...] = ()
    trains: bool = True  # brings the extra `train` along
    needed: tuple[str, ...] = ()  # other extras that the commands need


TRIALS = {  # by extra; none: the package alone
    "none": Trial(("ssdg table bench", "ssdg data describe images"), trains=False),
    "onnx": Trial(("ssdg evaluate tiny.onnx --data images/night",), trains=False),
    "parquet": Trial(("ssdg predict tiny.onnx images/night -o out.parquet",), trains=False, needed=("onnx",)),
    "figures": Trial(("ssdg figure bench pseudo-labels -o figure.png",), trains=False),
    "train": Trial((f"ssdg train {FOLDERS} --out runs/best --dry-run",)),
    "demo": Trial(("ssdg data unpack digits digits/ --per-class 2",)),
    "pretrained": Trial((f"ssdg train {FOLDERS} --out runs/lite1 --dry-run backbone=efficientnet-lite1 size=64",)),
    "export": Trial(
        ("ssdg export runs/export --format onnx -o again.onnx", "ssdg predict again.onnx images/night -o again.csv")
    ),
    "tensorboard": Trial((f"ssdg train {FOLDERS} --out runs/board --tensorboard --preset quick {TINY} {LABELER}",)),
    "web": Trial(("ssdg web ingest images/photo --out crawl", "ssdg web audit crawl --similarity 1")),
    # Their commands need a cluster or a model folder: that the packages load together with ours is what is checked.
    "ray": Trial(("python -c 'import ray, ssdg; ssdg.SSDG'",)),
    "hf": Trial(("python -c 'import transformers, ssdg; ssdg.SSDG'",)),
}


def next_extra(today: date | None = None) -> str:
    """Return the extra of the day: each in turn. By day, because a shallow clone has no number of commits."""
    names = list(TRIALS)
    return names[(today or date.today()).toordinal() % len(names)]


def common_commands(extra: str) -> list[str]:
    """Return what every environment must do: report, and train and predict with what it has."""
    commands = ["ssdg --version", "python -c 'import ssdg'", "ssdg report runs/tiny -o report.html"]
    if not TRIALS[extra].trains:
        predict = ["ssdg predict tiny.onnx images/night -o out.csv"] if extra in ("onnx", "parquet") else []
        return [NO_TORCH, *commands, *predict]
    run = f"runs/{extra}"
    train = f"ssdg train {FOLDERS} --out {run} --preset quick {TINY} {LABELER}"
    return [*commands, train, f"ssdg predict {run} images/night -o out.csv", f"ssdg report {run} -o own.html"]


def write_images(root: Path, per_class: int = 8) -> None:
    """Write three domains of two classes, 32 px: discs and bars of different colors and positions."""
    for domain, color in {"photo": "orange", "sketch": "white", "night": "blue"}.items():
        for name in ("disc", "bar"):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(per_class):
                image = Image.new("RGB", (32, 32), (10 * number, 20, 40))
                draw = ImageDraw.Draw(image)
                box = (4 + number, 6, 18 + number, 20) if name == "disc" else (2, 8 + number, 30, 12 + number)
                (draw.ellipse if name == "disc" else draw.rectangle)(box, fill=color)
                image.save(folder / f"{number}.png")
