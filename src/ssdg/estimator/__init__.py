"""`ssdg.SSDG`: training and prediction from Python, with the habits of scikit-learn."""

from .estimator import SSDG

__all__ = ["SSDG"]
