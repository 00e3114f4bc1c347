"""Measure the memory and speed of `ssdg predict` for few and many files.

    python benchmarks/predicting.py [--files 1000 50000] [--format csv]
    python benchmarks/predicting.py --run RUN --photos DIR [DIR ...] [--rounds 3]

The second form compares precisions: images per core second of `ssdg predict` with the model of a run, alternately
as `before` (float32, batches of 128, separate batch norms), with `--precision fp32` and with `--precision auto`. It
prints how many rows have another class than `before`. One thread.

In the first form, the files are hard links to twenty JPEGs of 320 × 240 in one folder. The networks are small (32 px,
random weights), so that the stream is measured. Every command runs in a separate process, which reports its peak
memory.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

CLASSES = [str(number) for number in range(10)]
SIZE = 32
MEASURED = """
import sys, time
from ssdg.cli import call
started = time.perf_counter()
code = call(sys.argv[1:])
seconds, busy = time.perf_counter() - started, time.process_time()
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, busy, int(peak) / 1024, file=sys.stderr)
sys.exit(code)
"""
# The path that `ssdg predict` took before: whole batches of 128, no folding.
BEFORE = """
import ssdg.artifact.load as load
load.fold = lambda learner, size, device: learner
load.evaluation_batch = lambda device, size: 128
"""
VARIANTS = {"before": (BEFORE, "fp32"), "fp32": ("", "fp32"), "auto": ("", "auto")}


def write_photos(folder: Path, count: int) -> Path:
    """So many names of twenty JPEGs."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{number:07}.jpg")
    for number in range(20, count):
        (folder / f"{number:07}.jpg").hardlink_to(folder / f"{number % 20:07}.jpg")
    return folder


def write_onnx(path: Path) -> Path:
    """Two convolutions, a mean and a softmax, as an exported file."""
    rng = np.random.default_rng(0)
    shapes = {"first": (32, 3, 3, 3), "second": (64, 32, 3, 3), "head": (64, len(CLASSES))}
    held = [numpy_helper.from_array(rng.normal(0, 0.1, s).astype(np.float32), n) for n, s in shapes.items()]
    held.append(numpy_helper.from_array(np.array(255, np.float32), "white"))
    nodes = [
        helper.make_node("Cast", ["images"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 3, 1, 2]),
        helper.make_node("Div", ["turned", "white"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "first"], ["a"], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "head"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probs"], axis=1),
    ]
    graph_input = helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", SIZE, SIZE, 3])
    graph_output = helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["N", len(CLASSES)])
    graph = helper.make_graph(nodes, "small", [graph_input], [graph_output], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    card = {"format": 1, "classes": CLASSES, "size": SIZE, "input": "uint8-nhwc", "reject": None}
    helper.set_model_props(model, {"ssdg": json.dumps(card)})
    onnx.save(model, path)
    return path


def write_model(folder: Path) -> Path:
    """The digits CNN with random weights, as a run leaves it."""
    from ssdg.artifact.tensors import save_tensors
    from ssdg.methods import find_method
    from ssdg.methods.api import Sizes
    from ssdg.models.backbones import build_backbone

    method = find_method("source-only")
    settings = method.settings.model_validate({})
    learner = method.learner(lambda: build_backbone("digits-cnn", "none"), Sizes(len(CLASSES), 1), settings)
    folder.mkdir()
    save_tensors(folder / "model.safetensors", dict(learner.nets.state_dict()), {})
    about = {"format": 1, "learner": "source-only", "backbone": "digits-cnn", "num_domains": 1}
    about |= {"size": SIZE, "classes": CLASSES, "settings": settings.model_dump(mode="json")}
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def measure(model: Path, photos: Path, out: Path) -> tuple[float, float, float]:
    """Seconds of the command, those that a core worked for it, and its peak memory in MB."""
    words = ["predict", str(model), str(photos), "-o", str(out), "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
    seconds, busy, peak = map(float, done.stderr.split()[-3:])
    return seconds, busy, peak


def classes_of(path: Path) -> list[str]:
    """The class of every row."""
    with path.open(newline="", encoding="utf-8") as file:
        return [row["class"] for row in csv.DictReader(file)]


def compare(run: Path, photos: Path, root: Path, rounds: int) -> None:
    """Print the speed of every variant on a folder, measured in turns."""
    paces: dict[str, list[float]] = {name: [] for name in VARIANTS}
    out = {name: root / f"{name}.csv" for name in VARIANTS}
    for _ in range(rounds):
        for name, (patch, precision) in VARIANTS.items():
            words = ["predict", str(run), str(photos), "-o", str(out[name]), "--device", "cpu"]
            words += ["--precision", precision, "--threads", "1", "--batch", "128"]
            command = [sys.executable, "-c", patch + MEASURED, *words]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            paces[name].append(len(classes_of(out[name])) / float(done.stderr.split()[-2]))
    before = classes_of(out["before"])
    for name, values in paces.items():
        ratios = [value / base for value, base in zip(values, paces["before"], strict=True)]
        changed = sum(a != b for a, b in zip(before, classes_of(out[name]), strict=True))
        cells = [photos.name, f"{len(before):,}", name, f"{median(values):.1f}", f"{median(ratios):.2f}"]
        print(f"| {' | '.join([*cells, f'{min(ratios):.2f} to {max(ratios):.2f}', str(changed)])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 50_000])
    parser.add_argument("--format", choices=("csv", "jsonl", "parquet"), default="csv")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--photos", type=Path, nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.run:
        head = ("Folder", "Images", "Precision", "Images per second of a core", "Ratio", "Range", "Other classes")
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        with tempfile.TemporaryDirectory() as name:
            for photos in arguments.photos:
                compare(arguments.run, photos, Path(name), arguments.rounds)
        return
    columns = ("Model", "Files", "Peak memory, MB", "Seconds", "Images/s", "Images per second of a core")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        models = {
            "two convolutions, .onnx": write_onnx(root / "model.onnx"),
            "digits CNN, torch": write_model(root / "m"),
        }
        folders = {count: write_photos(root / str(count), count) for count in arguments.files}
        for title, model in models.items():
            for count, photos in folders.items():
                seconds, busy, peak = measure(model, photos, root / f"out.{arguments.format}")
                paces = f"{count / seconds:,.0f} | {count / busy:,.0f}"
                print(f"| {title} | {count:,} | {peak:,.0f} | {seconds:.1f} | {paces} |", flush=True)


if __name__ == "__main__":
    main()
