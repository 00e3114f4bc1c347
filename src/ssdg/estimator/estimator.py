"""`SSDG`: scikit-learn-style training, prediction and scoring from Python."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..artifact.calibration import known_scores
from ..artifact.card import Training
from ..artifact.load import Model, load_model, model_of
from ..artifact.load import read_card as read_model_card
from ..engine.events import Listener
from ..engine.run import read_finished
from ..engine.scores import mean_probs
from ..files import scratch_folder
from .fit_predict import FitInputs, fit_run, join_labels, predict_logits, read_inputs, read_labeled_inputs
from .html_summary import format_summary
from .parameters import (
    format_estimator,
    get_parameters,
    image_classifier_tags,
    not_fitted_error,
    parameter_names,
    set_parameters,
    use_parameter_names,
)
from .save_load import copy_model, read_card, read_files, read_params, write_files


class SSDG:
    """Classifier for unseen domains, trained on one labeled domain and unlabeled images.

    Parameters
    ----------
    method, backbone, preset, weights, size, seed
        As in `ssdg train`; None uses the preset's value.
    unlabeled, web, web_label
        Defaults for the arguments of `fit`, for tools that only pass X and y, such as `GridSearchCV`.
    discover_domains
        'auto', or the number of domains to split each unlabeled domain into, by style.
    minutes
        How long to train, about: measures this machine and chooses steps, cycles and stored views, as
        `ssdg train --minutes` does. None trains as long as the preset says.
    out
        The run's folder. Calling `fit` again with the same `out` resumes an interrupted run, with bit-identical
        weights; a folder with a run of other data or settings is rejected. `{id}` in it is replaced by a digest of
        both, so that all fits of a grid search are stored. None uses a temporary folder, which exists as long as the
        object.
    device
        auto, cpu, cuda or mps.
    threads
        Number of CPU threads; results are bit-identical for the same number. None uses torch's default.
    cache
        Folder of decoded images. None uses $SSDG_CACHE or ~/.cache/ssdg.
    settings
        Other settings of the method and the run: {"epochs": 5, "labeler": {"epochs": 3}}. `get_params` and
        `set_params` know them as `settings__epochs` and `settings__labeler__epochs`.

    Attributes
    ----------
    classes_ : the sorted labels; the columns of `predict_proba` are in this order
    model_ : the networks, an `ssdg.Model`
    run_ : the run's folder, or the loaded folder
    result_ : the content of `result.json` of the run

    >>> from ssdg import SSDG
    >>> SSDG("mcd", size=64, settings={"epochs": 5})
    SSDG(method='mcd', size=64, settings={'epochs': 5})
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    classes_: NDArray[Any]
    model_: Model
    run_: Path
    result_: dict[str, Any]
    _training: Training | None

    def __init__(
        self,
        method: str = "eid",
        backbone: str | None = None,
        preset: str = "best",
        *,
        unlabeled: Any = None,
        web: Any = None,
        web_label: str = "ignored",
        weights: str | None = None,
        size: int | None = None,
        seed: int = 0,
        discover_domains: int | str | None = None,
        minutes: float | None = None,
        out: str | Path | None = None,
        device: str = "auto",
        threads: int | None = None,
        cache: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.preset = preset
        self.unlabeled = unlabeled
        self.web = web
        self.web_label = web_label
        self.weights = weights
        self.size = size
        self.seed = seed
        self.discover_domains = discover_domains
        self.minutes = minutes
        self.out = out
        self.device = device
        self.threads = threads
        self.cache = cache
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name; with `deep`, also every entry of `settings`, as `settings__NAME`."""
        return get_parameters(self, deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters for the next `fit`; `settings__NAME` sets one entry of `settings`."""
        set_parameters(self, params)
        return self

    def __repr__(self) -> str:
        return format_estimator(self)

    def _repr_html_(self) -> str:
        """Return the summary that notebooks show."""
        return format_summary(self)

    def __sklearn_tags__(self) -> Any:
        return image_classifier_tags()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        unlabeled: Any = None,
        target: Any = None,
        web: Any = None,
        web_label: str | None = None,
        callbacks: Sequence[Listener] = (),
    ) -> Self:
        """Train, or resume an interrupted fit.

        Parameters
        ----------
        X
            The labeled images: a uint8 array (N, H, W, 3) or (N, H, W), or a list of PIL images, paths or arrays; or
            images with labels: a folder of class folders, a dataset, or a tuple (images, labels).
        y
            The labels of X, integers or strings. None if X has labels.
        unlabeled
            Images, a folder, a list of folders, or {name: images} for several domains. Labels of a dataset are
            ignored. None uses the parameter `unlabeled`.
        target
            The domain to test on: scored after every epoch if it has labels, else predicted at the end. A folder, a
            dataset, images, or (images, labels).
        web
            Crawls: images with keywords as labels; a folder of keyword folders, a dataset or (images, keywords). None
            uses the parameter `web`.
        web_label
            How to use keywords: ignored, retained (as labels) or refined (labels of the first cycle). None uses the
            parameter `web_label`.
        callbacks
            Functions that receive each event, a dict; see docs/runs.md for the events.
        """
        with use_parameter_names():
            inputs = FitInputs(
                join_labels(X, y),
                self.unlabeled if unlabeled is None else unlabeled,
                target,
                self.web if web is None else web,
                self.web_label if web_label is None else web_label,
            )
            params = self.get_params(deep=False)
            root = self._temporary_folder() if self.out is None else Path(self.out)
            self._load_run(fit_run(root, params, inputs, callbacks, is_temporary=self.out is None))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated class probabilities (N, K), averaged over the networks.

        `X` is one image (a path or a PIL image), a folder, whose images are ordered by path, or images in a form that
        `fit` accepts.
        """
        model = self._fitted()
        with use_parameter_names():
            probs = model.probs(predict_logits(model, read_inputs(X)))
        return np.asarray(probs.numpy())[:, self._columns]

    def predict(self, X: Any, *, reject: float | None = None) -> NDArray[Any]:
        """Return the predicted label of every image.

        `X` has the forms of `predict_proba`. `reject` is the fraction of known images that may be rejected. With it,
        labels have dtype object, and are None for rejected images.
        """
        model = self._fitted()
        with use_parameter_names():
            threshold = model.require_rejection().threshold(reject) if reject is not None else None
            logits = predict_logits(model, read_inputs(X))
        labels: NDArray[Any] = self.classes_[mean_probs(logits)[:, self._columns].argmax(1).numpy()]
        if threshold is None:
            return labels
        labels = labels.astype(object)
        labels[known_scores(logits) < threshold] = None
        return labels

    def score(self, X: Any, y: Any = None) -> float:
        """Return the accuracy in [0, 1] on images and labels in a form that `fit` accepts."""
        model = self._fitted()
        with use_parameter_names():
            images, truth = read_labeled_inputs(X if y is None else (X, y), self._names)
            predicted = mean_probs(predict_logits(model, images))[:, self._columns].argmax(1).numpy()
        return float((predicted == truth).mean())

    def save(self, folder: str | Path) -> None:
        """Save the model to a folder; replace an existing model, but nothing else."""
        self._fitted()
        with use_parameter_names():
            copy_model(model_of(self.run_), Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", plugin: str | Path | None = None) -> Self:
        """Load a trained estimator from `save`, or from the folder of a run, without executing anything in the files.

        `plugin` is the Python file of a custom method.
        """
        with use_parameter_names():
            params = read_params(model_of(Path(folder)))
            known = {name: params[name] for name in parameter_names(cls) if name in params}
            estimator = cls(**{**known, "device": device})
            estimator._load_run(Path(folder), Path(plugin) if plugin else None)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, if fitted, the model files."""
        state: dict[str, Any] = {"params": self.get_params(deep=False)}
        return state | {"files": read_files(model_of(self.run_))} if hasattr(self, "model_") else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state["params"])
        if "files" in state:
            folder = self._temporary_folder() / "copied"
            write_files(folder, state["files"])
            self._load_run(folder)

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise not_fitted_error(self)
        return self.model_

    def _temporary_folder(self) -> Path:
        """Return a temporary folder that is deleted with this object."""
        if not hasattr(self, "_temporary"):
            stack = ExitStack()
            self._temporary = stack.enter_context(scratch_folder())
            weakref.finalize(self, stack.close)
        return self._temporary

    def _load_run(self, folder: Path, plugin: Path | None = None) -> None:
        """Load the trained networks of a folder."""
        model = load_model(folder, self.device, plugin)
        card = read_card(model_of(folder), model.classes)
        self.model_, self.run_ = model, folder.absolute()
        self.classes_ = np.array(card.labels)
        self._names = list(card.classes)
        self._training = read_model_card(model_of(folder)).training
        self._columns = [model.classes.index(name) for name in card.classes]
        if (result := read_finished(folder)) is not None:
            self.result_ = result
