"""A root in numbers: images per class and domain, and how many of them belong to no class, where it is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .catalog import Dataset, dataset_of, entry_of
from .folders import Benchmark, Domain, class_order, is_ood


@dataclass(frozen=True)
class Count:
    """Images, and how many of them belong to no class; None where nobody told."""

    images: int
    ood: int | None = None

    @property
    def ood_percent(self) -> float | None:
        """Percent of the images; None where it is not known."""
        return None if self.ood is None or not self.images else 100 * self.ood / self.images


@dataclass(frozen=True)
class DomainCount:
    """One domain: counts by class, '' for images without one, and what the catalog expects in all."""

    name: str
    classes: dict[str, Count]
    total: Count
    expected: int | None


@dataclass(frozen=True)
class Statistics:
    """All domains of a root, and the benchmark that they are known as."""

    dataset: Dataset | None
    domains: tuple[DomainCount, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class that a domain has; then the folder of images of no class, and '' for those in no folder."""
        names = {name for domain in self.domains for name in domain.classes}
        strange = {name for name in names if is_ood(name)}
        return (*class_order(names - strange), *sorted(strange), *([""] if "" in names else []))


def count_images(benchmark: Benchmark) -> Statistics:
    """Count by folders and labels; no image is read."""
    dataset = dataset_of(benchmark.names)
    return Statistics(dataset, tuple(_count_domain(domain, dataset) for domain in benchmark.domains))


def _count_domain(domain: Domain, dataset: Dataset | None) -> DomainCount:
    classes, total = _count_crawl(domain) if domain.web_labels else _count_folders(domain)
    entry = entry_of(domain.name, dataset)
    return DomainCount(domain.name, classes, total, entry.num_images if entry else None)


def _count_crawl(domain: Domain) -> tuple[dict[str, Count], Count]:
    """By web-label: what each keyword found, and how much of it belongs to no class."""
    found = Counter(domain.web_labels)
    strange = Counter(word for word, label in zip(domain.web_labels, domain.labels, strict=True) if is_ood(label))
    classes = {word: Count(found[word], strange[word]) for word in class_order(found)}
    return classes, Count(len(domain.items), strange.total())


def _count_folders(domain: Domain) -> tuple[dict[str, Count], Count]:
    """OOD images of a class lie in `<class>/ood`, those of which no class is told in `ood` beside the classes.

    Where only the latter is there, how many of them each class had is not known.
    """
    counts, inside = domain.counts(), _inside_ood(domain)
    by_class = any(not is_ood(name) for name in inside)
    strange = {name: counts[name] if is_ood(name) else inside[name] for name in counts}
    classes = {
        name: Count(images, strange[name] if by_class or is_ood(name) else None) for name, images in counts.items()
    }
    is_told = by_class or any(map(is_ood, counts))
    return classes, Count(len(domain.items), sum(strange.values()) if is_told else None)


def _inside_ood(domain: Domain) -> Counter[str]:
    """Images below a folder `ood` inside their class folder, by class."""
    found: Counter[str] = Counter()
    for name, item in zip(domain.labels, domain.items, strict=True):
        folders = item.parts[:-1]
        below = folders[folders.index(name) + 1 :] if name in folders else []
        found[name] += any(map(is_ood, below))
    return +found  # without the zeros
