"""From images to an ONNX file, in one script: train, save, export, predict, and compare with torch.

    python examples/folders_to_onnx.py [--short]

The images are the embedded digits; pass your folders, arrays or datasets to `fit` instead. Editors that support cells
(`# %%`) run them one by one. Takes minutes on two cores; --short takes seconds, and learns little.
"""

# %% Images: one labeled domain, two unlabeled domains, and one unseen domain
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from ssdg import SSDG, default_cache, digits_root

root = digits_root(default_cache())
domains = {name: np.load(root / f"{name}.npz") for name in ("syn", "mnist_m", "optdigits", "mnist")}
images = {name: arrays["images"] for name, arrays in domains.items()}  # uint8, (n, 32, 32, 3)
labels, truth = domains["syn"]["labels"], domains["mnist"]["labels"]

# %% Train with preset best, which sees that these are small images; calling fit again resumes an interrupted run
settings = {"start_epochs": 6, "cycles": 4, "epochs": 1, "iterations": 60}  # half a minute on two cores
if "--short" in sys.argv:
    settings |= {"start_epochs": 1, "cycles": 1, "iterations": 2}
folder = Path(tempfile.mkdtemp(prefix="ssdg-example-"))
model = SSDG(out=folder / "run", settings=settings)
model.fit(images["syn"], labels, unlabeled={"mnist_m": images["mnist_m"], "optdigits": images["optdigits"]})
print(f"accuracy on the unseen domain: {100 * model.score(images['mnist'], truth):.1f} %")

# %% Save it and load it
model.save(folder / "model")
loaded = SSDG.load(folder / "model")
probs = loaded.predict_proba(images["mnist"])
assert np.array_equal(probs, model.predict_proba(images["mnist"]))

# %% Export: the file is compared with torch before it is written
command = ["export", str(folder / "model"), "--format", "onnx", "-o", str(folder / "digits.onnx")]
subprocess.run([sys.executable, "-m", "ssdg", *command], check=True)

# %% Use it with onnxruntime alone
session = onnxruntime.InferenceSession(folder / "digits.onnx")
metadata = json.loads(session.get_modelmeta().custom_metadata_map["ssdg"])
(onnx_probs,) = session.run(["probs"], {"images": images["mnist"]})
difference = np.abs(onnx_probs - probs).max()
agreement = np.mean(onnx_probs.argmax(1) == probs.argmax(1))
print(
    f"ONNX Runtime and torch: largest difference {difference:.1e}, same class for {100 * agreement:.2f} % of images"
)
assert difference < 1e-4
assert [metadata["classes"][k] for k in onnx_probs[:5].argmax(1)] == [
    str(c) for c in loaded.predict(images["mnist"][:5])
]
print(f"all files are in {folder}")
