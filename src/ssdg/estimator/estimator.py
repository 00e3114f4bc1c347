"""`SSDG`: training, prediction and scores from Python, with the habits of scikit-learn."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..artifact.calibration import known_scores
from ..artifact.load import Model, load_model, model_of
from ..engine.events import Listener
from ..engine.run import finished
from ..engine.scores import mean_probs
from .fit_predict import Given, fit_in, logits_of, read_plain, read_scored
from .parameters import (
    change_parameters,
    describe,
    image_classifier_tags,
    not_fitted,
    parameter_names,
    words_of_python,
)
from .save_load import copy_model, read_card, read_files, read_params, write_files


class SSDG:
    """A classifier from one labeled domain and piles of unlabeled images, for domains it has never seen.

    Parameters
    ----------
    method, backbone, preset, weights, size, seed
        As in `ssdg train`; None takes the preset's.
    discover_domains
        'auto', or a number: split each unlabeled domain by style into so many.
    out
        The run's folder. A fit that was interrupted goes on when it is called again with the same `out`, bit for
        bit. Without it the folder is a temporary one, which lives as long as the object.
    device
        auto, cpu or cuda.
    threads
        CPU threads; results repeat bit for bit for the same number. None leaves torch's.
    cache
        Where decoded images are kept. None: $SSDG_CACHE or ~/.cache/ssdg.
    settings
        All other settings of the method and the run: {"epochs": 5, "labeler": {"epochs": 3}}.

    Attributes
    ----------
    classes_ : the labels, sorted; columns of `predict_proba` are in this order
    model_ : the networks, an `ssdg.Model`
    run_ : the run's folder, or the folder that was loaded
    result_ : what `result.json` of the run holds

    >>> from ssdg import SSDG
    >>> SSDG("mcd", size=64, settings={"epochs": 5})
    SSDG(method='mcd', size=64, settings={'epochs': 5})
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    classes_: NDArray[Any]
    model_: Model
    run_: Path
    result_: dict[str, Any]

    def __init__(
        self,
        method: str = "eid",
        backbone: str | None = None,
        preset: str = "quick",
        *,
        weights: str | None = None,
        size: int | None = None,
        seed: int = 0,
        discover_domains: int | str | None = None,
        out: str | Path | None = None,
        device: str = "auto",
        threads: int | None = None,
        cache: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.preset = preset
        self.weights = weights
        self.size = size
        self.seed = seed
        self.discover_domains = discover_domains
        self.out = out
        self.device = device
        self.threads = threads
        self.cache = cache
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` is scikit-learn's and changes nothing here."""
        return {name: getattr(self, name) for name in parameter_names(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; the next `fit` uses them."""
        change_parameters(self, params)
        return self

    def __repr__(self) -> str:
        return describe(self)

    def __sklearn_tags__(self) -> Any:
        return image_classifier_tags()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def fit(
        self,
        labeled: Any,
        unlabeled: Any = None,
        target: Any = None,
        *,
        web: Any = None,
        web_label: str = "ignored",
        callbacks: Sequence[Listener] = (),
    ) -> Self:
        """Train, or go on with a fit that was interrupted.

        Parameters
        ----------
        labeled
            A folder of class folders, (images, labels), or a dataset of both. Images are a uint8 array
            (N, H, W, 3) or (N, H, W), a list of PIL images, paths or arrays, a folder or a .zip archive.
        unlabeled
            Images, a list of folders, or {name: images} for several domains. Labels of a dataset are not looked at.
        target
            The domain to test on: with labels it is scored after every epoch, without it is predicted in the end.
        web
            Crawls: images with keywords for labels, in the same forms.
        web_label
            Keywords are ignored, retained (as labels) or refined (labels of the first cycle).
        callbacks
            Functions of an event, a dict: docs/runs.md tells of events.
        """
        with words_of_python():
            given = Given(labeled, unlabeled, target, web, web_label)
            root = Path(self._own_folder() if self.out is None else self.out)
            self._adopt(fit_in(root, self.get_params(), given, callbacks, is_temporary=self.out is None))
        return self

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """The probability of every class for every image, (N, K), averaged over the networks, calibrated.

        Images are given as in `fit`, without labels; those of a folder come in the order of their paths.
        """
        model = self._fitted()
        with words_of_python():
            probs = model.probs(logits_of(model, read_plain(images)))
        return np.asarray(probs.numpy())[:, self._columns]

    def predict(self, images: Any, *, reject: float | None = None) -> NDArray[Any]:
        """The label of every image.

        With `reject`, the share of known images that may be lost, the labels are of type object, and None for images
        that look unknown.
        """
        model = self._fitted()
        with words_of_python():
            threshold = model.require_rejection().threshold(reject) if reject is not None else None
            logits = logits_of(model, read_plain(images))
        labels: NDArray[Any] = self.classes_[mean_probs(logits)[:, self._columns].argmax(1).numpy()]
        if threshold is None:
            return labels
        labels = labels.astype(object)
        labels[known_scores(logits) < threshold] = None
        return labels

    def score(self, labeled: Any, y: Any = None) -> float:
        """The share of images classified right: of (images, labels), a dataset, or a folder of class folders."""
        model = self._fitted()
        with words_of_python():
            images, truth = read_scored(labeled if y is None else (labeled, y), self._names)
            found = mean_probs(logits_of(model, images))[:, self._columns].argmax(1).numpy()
        return float((found == truth).mean())

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder; an older model there is replaced, anything else is not."""
        self._fitted()
        with words_of_python():
            copy_model(model_of(self.run_), Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", plugin: str | Path | None = None) -> Self:
        """A trained estimator from `save`, or from the folder of a run; nothing in the files is executed.

        `plugin` is the Python file with the method, where it is one of your own.
        """
        with words_of_python():
            params = read_params(model_of(Path(folder)))
            known = {name: params[name] for name in parameter_names(cls) if name in params}
            estimator = cls(**{**known, "device": device})
            estimator._adopt(Path(folder), Path(plugin) if plugin else None)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Parameters, and of a trained estimator the files of its model."""
        state: dict[str, Any] = {"params": self.get_params()}
        return state | {"files": read_files(model_of(self.run_))} if hasattr(self, "model_") else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state["params"])
        if "files" in state:
            folder = Path(self._own_folder()) / "copied"
            write_files(folder, state["files"])
            self._adopt(folder)

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise not_fitted(self)
        return self.model_

    def _own_folder(self) -> str:
        """A temporary folder that vanishes with this object."""
        if not hasattr(self, "_temporary"):
            self._temporary = tempfile.mkdtemp(prefix="ssdg-")
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary

    def _adopt(self, folder: Path, plugin: Path | None = None) -> None:
        """Take the trained networks of a folder."""
        model = load_model(folder, self.device, plugin)
        card = read_card(model_of(folder), model.classes)
        self.model_, self.run_ = model, folder.absolute()
        self.classes_ = np.array(card.labels)
        self._names = list(card.classes)
        self._columns = [model.classes.index(name) for name in card.classes]
        if (result := finished(folder)) is not None:
            self.result_ = result
