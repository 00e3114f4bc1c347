"""From images to a file that onnxruntime runs, in one script: train, save, export, predict, and compare with torch.

    python examples/folders_to_onnx.py [--short]

The images are the embedded digits; `fit` takes your folders, arrays or datasets in their place. Cells (`# %%`) run
one by one in editors that know them. Minutes on two cores; --short takes less, and learns little.
"""

# %% Images: one labeled domain, two piles without labels, and one domain that training never sees
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from ssdg import SSDG
from ssdg.cli import call
from ssdg.data.embedded.digits import digits_root
from ssdg.engine.setup import default_cache

root = digits_root(default_cache())
domains = {name: np.load(root / f"{name}.npz") for name in ("syn", "mnist_m", "optdigits", "mnist")}
images = {name: arrays["images"] for name, arrays in domains.items()}  # uint8, (n, 32, 32, 3)
labels, truth = domains["syn"]["labels"], domains["mnist"]["labels"]

# %% Train; an interrupted fit goes on when it is called again
settings = {"augment": "none", "warm_epochs": 10, "lr": 0.02, "cycles": 2, "epochs": 3, "labeler": {"epochs": 3}}
if "--short" in sys.argv:
    settings |= {
        "warm_epochs": 1,
        "cycles": 1,
        "epochs": 1,
        "iterations": 2,
        "labeler": {"epochs": 1, "iterations": 2},
    }
place = Path(tempfile.mkdtemp(prefix="ssdg-example-"))
model = SSDG("eid", "digits-cnn", weights="none", size=32, out=place / "run", settings=settings)
model.fit((images["syn"], labels), {"mnist_m": images["mnist_m"], "optdigits": images["optdigits"]})
print(f"right on the unseen domain: {100 * model.score(images['mnist'], truth):.1f} %")

# %% Save it, and read it again
model.save(place / "model")
again = SSDG.load(place / "model")
probs = again.predict_proba(images["mnist"])
assert np.array_equal(probs, model.predict_proba(images["mnist"]))

# %% Export: the file is compared with torch before it is written
code = call(["export", str(place / "model"), "--format", "onnx", "-o", str(place / "digits.onnx")])
assert code == 0

# %% Use it with onnxruntime alone
session = onnxruntime.InferenceSession(place / "digits.onnx")
about = json.loads(session.get_modelmeta().custom_metadata_map["ssdg"])
(told,) = session.run(["probs"], {"images": images["mnist"]})
difference = np.abs(told - probs).max()
same = np.mean(told.argmax(1) == probs.argmax(1))
print(f"onnxruntime and torch: largest difference {difference:.1e}, the same class for {100 * same:.2f} % of images")
assert difference < 1e-4
assert [about["classes"][k] for k in told[:5].argmax(1)] == [str(c) for c in again.predict(images["mnist"][:5])]
print(f"all files are in {place}")
