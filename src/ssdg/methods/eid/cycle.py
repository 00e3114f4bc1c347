"""Algorithm 1 of Lin et al., Semi-Supervised Domain Generalization with Evolving Intermediate Domain."""

from __future__ import annotations

from ...data.sets import Inputs, Task
from ..api import Build, Learner, Method, Trainer, find_labeler, register
from .averaged import build_networks
from .bridge import evolve, first_source
from .labeling import Labeling
from .self_labeling import fit_self_labeled
from .settings import (
    BEST,
    BEST_DIGITS,
    BEST_PRETRAINED,
    BEST_RANDOM,
    FAST,
    QUICK,
    QUICK_DIGITS,
    RELEASE,
    RELEASE_CRAWL,
    SELF,
    EidSettings,
)

DUAL_TITLE = "two networks of DCG"


def fit(task: Task, trainer: Trainer, build: Build, cfg: EidSettings) -> Learner:
    """Run the cycle: labelers assign pseudo-labels, dual networks learn them, the clean part is the next source.

    In domain adaptation the target is the only unlabeled domain and its labeler is the product: DCG is discarded in
    the end, so the last cycle skips it. Crawls with retained web-labels have no labeler: if all unlabeled domains are
    such crawls, a cycle is DCG alone.
    """
    if cfg.apl == SELF:
        return fit_self_labeled(task, trainer, build, cfg)
    adapts = task.setting == "uda"
    apl = Labeling(find_labeler(cfg.apl), cfg.labeler, cfg.apl_backbone, cfg.apl_weights)
    labelers = apl.build(task, build)
    dual = build("dcg", build_networks, cfg)
    source = first_source(task, cfg)
    for cycle in range(1, cfg.cycles + 1):
        if cfg.reinit and cycle > 1:
            labelers = apl.build(task, build, cycle=cycle)
            dual = build(f"dcg/{cycle}", build_networks, cfg)
        # APL
        pseudo, is_rejected = apl.pseudo_label(task, trainer, labelers, source, cycle=cycle, product=adapts)
        if adapts and cycle == cfg.cycles:
            return next(iter(labelers.values()))
        # DCG
        inputs = Inputs(task.labeled, pseudo=pseudo, union=cfg.union)
        trainer.train(
            "dcg", dual, inputs, cfg.dcg, round=cycle, lr_scale=1 / cycle**2, product=not adapts, title=DUAL_TITLE
        )
        # EID
        if labelers:  # which learn from it
            source = evolve(task, trainer, dual, cfg, cycle=cycle, is_rejected=is_rejected)
    return dual


register(
    Method(
        name="eid",
        family="ours",
        paper="Lin et al., Semi-Supervised Domain Generalization with Evolving Intermediate Domain",
        summary="pseudo-label each unlabeled domain, calibrate with two networks, mix the clean part, repeat",
        learner=build_networks,
        settings=EidSettings,
        needs=("unlabeled",),
        presets={
            "release": RELEASE,
            "release crawl": RELEASE_CRAWL,
            "fast": FAST,
            "quick": QUICK,
            "quick none": QUICK_DIGITS,
            "best": BEST,
            "best random": BEST_RANDOM,
            "best none": BEST_DIGITS,
            "best pretrained": BEST_PRETRAINED,
        },
        algorithm=fit,
        uses_web_labels=True,
    )
)
