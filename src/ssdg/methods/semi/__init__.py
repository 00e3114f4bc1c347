"""Semi-supervised methods: labeled and unlabeled images, domains ignored."""

from . import fixmatch, mean_teacher, mixmatch

__all__ = ["fixmatch", "mean_teacher", "mixmatch"]
