"""Semi-supervised methods: labeled and unlabeled images, without regard to domains."""

from . import fixmatch, mean_teacher, mixmatch

__all__ = ["fixmatch", "mean_teacher", "mixmatch"]
