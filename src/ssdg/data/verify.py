"""The contents of a data root: images per class and domain, and what is wrong with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache import digest_content
from .catalog import Dataset, dataset_of, entry_of
from .parallel import Progress, in_threads, shown
from .sources.benchmark import Benchmark, Domain, class_order, is_ood, read_benchmark
from .sources.decode import UnreadableError, decode_whole, image_size
from .sources.tree import Item, Reader


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


SIZES_FROM = 200  # images per domain whose size is looked up for a description


@dataclass(frozen=True)
class Finding:
    """One thing that a user may want to know or repair."""

    kind: str  # missing, repeated, unlisted, overlap, unreadable, duplicate, count or classes
    domain: str
    text: str


@dataclass(frozen=True)
class Description:
    """A root in numbers; `sizes` counts (width, height) over up to `SIZES_FROM` images per domain."""

    benchmark: Benchmark
    dataset: Dataset | None
    sizes: dict[str, dict[tuple[int, int], int]]


def describe(root: Path) -> Description:
    """Count domains, classes and image sizes; headers are read, no pixel is decoded."""
    benchmark = read_benchmark(root)
    with Reader() as reader:
        sizes = {domain.name: _sizes(domain, reader) for domain in benchmark.domains}
    return Description(benchmark, dataset_of(benchmark.names), sizes)


def _sizes(domain: Domain, reader: Reader) -> dict[tuple[int, int], int]:
    step = -(-len(domain.items) // SIZES_FROM)
    found: Counter[tuple[int, int]] = Counter()
    for item in domain.items[::step]:
        try:
            content = reader.read(item)
            found[image_size(content) if isinstance(content, bytes) else (content.shape[1], content.shape[0])] += 1
        except (OSError, UnreadableError):  # `verify` tells about these
            continue
    return dict(found.most_common())


def verify(root: Path, progress: Progress | None = None) -> list[Finding]:
    """Read and decode every image, compare with lists, catalog and one another; no finding: all is well."""
    benchmark = read_benchmark(root)
    dataset = dataset_of(benchmark.names)
    findings = [finding for domain in benchmark.domains for finding in _listed(domain)]
    owners = [(domain.name, item) for domain in benchmark.domains for item in domain.items]
    digests, reasons = _read_all([item for _, item in owners], progress)
    findings += [Finding("unreadable", owners[i][0], f"{owners[i][1].path}: {reasons[i]}") for i in sorted(reasons)]
    findings += _duplicates(owners, digests)
    findings += _counts(benchmark, dataset)
    findings += _class_differences(benchmark)
    return findings


def _listed(domain: Domain) -> Iterator[Finding]:
    for path in dict.fromkeys(domain.missing):
        yield Finding("missing", domain.name, f"{path} is listed but not there")
    for line in domain.repeated:
        yield Finding("repeated", domain.name, f"{line} is listed more than once")
    if "train" in domain.splits and "crossval" in domain.splits:
        used = {*domain.splits["train"], *domain.splits["crossval"]}
        for row in sorted(set(range(len(domain.items))) - used):
            path = domain.items[row].path
            yield Finding("unlisted", domain.name, f"{path} is in neither the train nor the crossval list")
        for row in sorted({*domain.splits["train"]} & {*domain.splits["crossval"]}):
            path = domain.items[row].path
            yield Finding("overlap", domain.name, f"{path} is in both the train and the crossval list")


def _read_all(items: Sequence[Item], progress: Progress | None) -> tuple[dict[int, bytes], dict[int, str]]:
    """The content hash of each item that can be read, and why the others cannot be read or decoded."""
    digests: dict[int, bytes] = {}
    reasons: dict[int, str] = {}

    def work(rows: range) -> None:
        for row in rows:
            try:
                content = reader.read(items[row])
                digests[row] = digest_content(content)
                if isinstance(content, bytes):
                    decode_whole(content)
            except OSError as error:
                reasons[row] = f"cannot be read: {error.strerror or error}"
            except UnreadableError as reason:
                reasons[row] = str(reason)

    with Reader() as reader, shown("verify", progress) as tell:
        for done in in_threads(work, len(items)):
            tell(done, len(items))
    return digests, reasons


def _duplicates(owners: Sequence[tuple[str, Item]], digests: dict[int, bytes]) -> Iterator[Finding]:
    """Groups of the same content; under two classes or in two domains they can spoil a result."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for row in sorted(digests):
        groups[digests[row]].append(row)
    for rows in groups.values():
        if len(rows) > 1:
            domains = list(dict.fromkeys(owners[row][0] for row in rows))
            yield Finding(
                "duplicate", ", ".join(domains), f"same content: {_listing(owners[r][1].path for r in rows)}"
            )


def _listing(names: Iterable[str]) -> str:
    shown_names = list(names)
    rest = f" and {len(shown_names) - 6} more" if len(shown_names) > 6 else ""
    return ", ".join(shown_names[:6]) + rest


def _counts(benchmark: Benchmark, dataset: Dataset | None) -> Iterator[Finding]:
    for domain in benchmark.domains:
        entry = entry_of(domain.name, dataset)
        if dataset and entry and entry.num_images not in (None, len(domain.items)):
            text = f"{len(domain.items)} images, {dataset.name} has {entry.num_images}"
            yield Finding("count", domain.name, text)


def _class_differences(benchmark: Benchmark) -> Iterator[Finding]:
    """Classes that some domains have and others lack."""
    have = {d.name: {label for label in d.labels if label and not is_ood(label)} for d in benchmark.domains}
    everything = set().union(*have.values())
    for name, classes in have.items():
        if lacking := everything - classes:
            yield Finding("classes", name, f"lacks {_listing(sorted(lacking))}, which other domains have")
