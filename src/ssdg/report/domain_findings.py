"""Findings about the images of the domains: unlabeled domains that look alike, a target that resembles none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .domain_styles import distances, styles
from .finding import Finding
from .run_folder import Run

# Distances are in standard deviations within a domain (`domain_styles.distances`).
# Cohen's "small effect". Two random halves of a domain of digits or PACS are at most 0.11 apart. The closest domains
# of PACS are 0.63 apart, those of Office-Home 0.11 (Art and Real World) and 0.26.
MAX_ALIKE = 0.2
# The average image of the target differs by a standard deviation from that of the nearest training domain.
MIN_FAR = 1.0
# How much farther the target is from its nearest training domain than any of these from its own: 3.8 times for the
# sketches of PACS, less than once for its other domains and for those of Office-Home.
MIN_TIMES_FARTHER = 1.5
MEASURE = "standard deviations in brightness, colorfulness, contrast and texture"


def _names(run: Run, *roles: str) -> list[str]:
    return [name for name, domain in run.samples.domains.items() if domain.role in roles] if run.samples else []


def alike_domains(run: Run) -> Iterator[Finding]:
    """Report two unlabeled domains of the same style, which methods treat as different ones."""
    known = {name: style for name, style in styles(run).items() if name in _names(run, "unlabeled")}
    for pair, distance in distances(known).items():
        if distance < MAX_ALIKE:
            first, second = (name for name in known if name in pair)
            yield Finding(
                "hint",
                f"The unlabeled domains {first} and {second} look alike.",
                f"{distance:.2f} {MEASURE} apart",
                "Their images may be one domain under two names. " + _merge_advice(run),
            )


def _merge_advice(run: Run) -> str:
    if run.config.get("discover_domains"):
        return "Discover fewer domains (--discover-domains 1, or a smaller number)."
    if run.config.get("data"):
        return "Merge them and split the images by style instead (--discover-domains auto)."
    return "Move them into one folder, or split that folder by style (--discover-domains auto)."


def far_target(run: Run) -> Iterator[Finding]:
    """Report a target that differs from every training domain more than these differ from each other."""
    known = styles(run)
    training = [name for name in _names(run, "labeled", "unlabeled") if name in known]
    between = distances(known)
    for target in _names(run, "target"):
        if target not in known or not training:
            continue
        distance, nearest = min((between[frozenset((target, name))], name) for name in training)
        gaps = [min(between[frozenset((a, b))] for b in training if b != a) for a in training if len(training) > 1]
        widest = max(gaps, default=0.0)
        if distance > max(MIN_FAR, MIN_TIMES_FARTHER * widest):
            scale = f"; for training domains, at most {widest:.1f}" if gaps else ""
            yield Finding(
                "hint",
                f"The unseen domain {target} resembles no training domain.",
                f"{distance:.1f} {MEASURE} from the nearest, {nearest}{scale}",
                "Expect a lower accuracy than on the training domains. Add unlabeled images of a similar style "
                "(--unlabeled FOLDER); they need no labels.",
            )


RULES: tuple[Callable[[Run], Iterator[Finding]], ...] = (alike_domains, far_target)
