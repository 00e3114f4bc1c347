"""`ssdg.SSDG`: scikit-learn-style training and prediction from Python."""

from .estimator import SSDG

__all__ = ["SSDG"]
