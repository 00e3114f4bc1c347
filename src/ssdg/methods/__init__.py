"""Training methods, one file each, and everything a plugin needs to add one.

Importing this package registers all methods. See docs/add-a-method.md.
"""

from ..data.sets import (
    Batch,
    Inputs,
    LabeledBatch,
    LabeledSet,
    MixedSet,
    PseudoLabels,
    Task,
    UnlabeledBatch,
    UnlabeledSet,
    concat_labeled,
)
from ..devices import onto
from ..losses.classification import cross_entropy, cross_entropy_per_sample
from ..models.backbones import Backbone
from ..models.heads import linear_head
from . import adaptation, frozen, generalization, semi, source_only
from .api import (
    METHODS,
    AdaptationSettings,
    Build,
    LabelKind,
    Learner,
    MakeBackbone,
    Method,
    Progress,
    Rule,
    Settings,
    Sizes,
    Trainer,
    argmax_rule,
    descend,
    find_method,
    register,
    sgd,
    with_head,
)
from .compose import pair
from .eid import cycle
from .source_only import warm_build

# The pairs of the paper's tables; any other is composed on demand.
for name in ("mcd+mixstyle", "mcd+ddaig", "cdan-e+daeldg"):
    register(pair(name))

__all__ = [
    "METHODS",
    "AdaptationSettings",
    "Backbone",
    "Batch",
    "Build",
    "Inputs",
    "LabelKind",
    "LabeledBatch",
    "LabeledSet",
    "Learner",
    "MakeBackbone",
    "Method",
    "MixedSet",
    "Progress",
    "PseudoLabels",
    "Rule",
    "Settings",
    "Sizes",
    "Task",
    "Trainer",
    "UnlabeledBatch",
    "UnlabeledSet",
    "adaptation",
    "argmax_rule",
    "concat_labeled",
    "cross_entropy",
    "cross_entropy_per_sample",
    "cycle",
    "descend",
    "find_method",
    "frozen",
    "generalization",
    "linear_head",
    "onto",
    "pair",
    "register",
    "semi",
    "sgd",
    "source_only",
    "warm_build",
    "with_head",
]
