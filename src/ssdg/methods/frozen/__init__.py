"""Methods that train no layer of a pretrained backbone: minutes of one core, and hard to beat with few images."""

from . import probe, self_training

__all__ = ["probe", "self_training"]
