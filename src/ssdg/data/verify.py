"""Statistics and verification of a data root: images per class and domain, and problems with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache import digest_content
from .catalog import Dataset, find_entry, identify_dataset
from .parallel import ProgressCallback, run_in_threads, show_progress
from .roles import unique_name
from .sources.benchmark import Benchmark, Domain, class_order, is_ood, read_benchmark, read_class_folder
from .sources.decode import UnreadableError, decode_whole, image_size
from .sources.tree import Item, Reader


@dataclass(frozen=True)
class Count:
    """Number of images, and of those that belong to no class; None if unknown."""

    images: int
    ood: int | None = None

    @property
    def ood_percent(self) -> float | None:
        """OOD images in percent of all images; None if unknown."""
        return None if self.ood is None or not self.images else 100 * self.ood / self.images


@dataclass(frozen=True)
class DomainCount:
    """Counts of one domain by class, '' for images without one, and the total that the catalog expects."""

    name: str
    classes: dict[str, Count]
    total: Count
    expected: int | None


@dataclass(frozen=True)
class Statistics:
    """Counts of all domains of a root, and the benchmark that they belong to."""

    dataset: Dataset | None
    domains: tuple[DomainCount, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes of all domains, then the folder of OOD images, then '' for images in no folder."""
        names = {name for domain in self.domains for name in domain.classes}
        ood = {name for name in names if is_ood(name)}
        return (*class_order(names - ood), *sorted(ood), *([""] if "" in names else []))


def count_images(benchmark: Benchmark) -> Statistics:
    """Count images by folder and label without reading them."""
    dataset = identify_dataset(benchmark.names)
    return Statistics(dataset, tuple(_count_domain(domain, dataset) for domain in benchmark.domains))


def _count_domain(domain: Domain, dataset: Dataset | None) -> DomainCount:
    classes, total = _count_crawl(domain) if domain.web_labels else _count_folders(domain)
    entry = find_entry(domain.name, dataset)
    return DomainCount(domain.name, classes, total, entry.num_images if entry else None)


def _count_crawl(domain: Domain) -> tuple[dict[str, Count], Count]:
    """Count images by web-label: how many each keyword found, and how many of them are OOD."""
    counts = Counter(domain.web_labels)
    ood = Counter(word for word, label in zip(domain.web_labels, domain.labels, strict=True) if is_ood(label))
    classes = {word: Count(counts[word], ood[word]) for word in class_order(counts)}
    return classes, Count(len(domain.items), ood.total())


def _count_folders(domain: Domain) -> tuple[dict[str, Count], Count]:
    """Count images by class folder: OOD images are in `<class>/ood`, or in `ood` next to the classes.

    With only the latter, the number of OOD images per class is unknown.
    """
    counts, nested = domain.counts(), _count_nested_ood(domain)
    by_class = any(not is_ood(name) for name in nested)
    ood = {name: counts[name] if is_ood(name) else nested[name] for name in counts}
    classes = {
        name: Count(images, ood[name] if by_class or is_ood(name) else None) for name, images in counts.items()
    }
    is_known = by_class or any(map(is_ood, counts))
    return classes, Count(len(domain.items), sum(ood.values()) if is_known else None)


def _count_nested_ood(domain: Domain) -> Counter[str]:
    """Count images in a folder `ood` inside their class folder, by class."""
    counts: Counter[str] = Counter()
    for name, item in zip(domain.labels, domain.items, strict=True):
        folders = item.parts[:-1]
        below = folders[folders.index(name) + 1 :] if name in folders else []
        counts[name] += any(map(is_ood, below))
    return +counts  # without zeros


CLASS_LAYOUT = "<class>/<image>"
MAX_SIZE_SAMPLES = 200  # images per domain whose size is read for a description


@dataclass(frozen=True)
class Finding:
    """Problem in the data that a user may want to know of or fix."""

    kind: str  # missing, repeated, unlisted, overlap, unreadable, duplicate, count or classes
    domain: str  # or the class, if the root is a class folder
    text: str


def read_root(root: Path) -> Benchmark:
    """Read the domains under a root; a class folder, whose subfolders hold images, is one domain.

    A benchmark has a domain with classes, so subfolders that all hold images directly are classes.
    """
    benchmark = read_benchmark(root, skip_damaged=True)
    if not is_class_folder(benchmark):
        return benchmark
    domain = read_class_folder(root, unique_name(root, ()))
    return Benchmark(root, CLASS_LAYOUT, (domain,), benchmark.skipped)


def is_class_folder(benchmark: Benchmark) -> bool:
    """Return whether the subfolders of a root are classes, not domains."""
    if benchmark.layout == CLASS_LAYOUT:
        return True
    labels = [label for domain in benchmark.domains for label in domain.labels]
    return bool(labels) and not any(labels)


@dataclass(frozen=True)
class Description:
    """Summary of a root; `sizes` and `unreadable` count over up to `MAX_SIZE_SAMPLES` images per domain."""

    benchmark: Benchmark
    dataset: Dataset | None
    sizes: dict[str, dict[tuple[int, int], int]]  # (width, height) -> images
    unreadable: dict[str, int]


def describe(root: Path) -> Description:
    """Summarize domains, classes and image sizes; read image headers without decoding pixels."""
    benchmark = read_root(root)
    with Reader() as reader:
        sizes = {domain.name: _sizes(domain, reader) for domain in benchmark.domains}
    unreadable = {name: counts.pop(None, 0) for name, counts in sizes.items()}
    by_size = {name: {size: n for size, n in counts.items() if size} for name, counts in sizes.items()}
    return Description(benchmark, identify_dataset(benchmark.names), by_size, unreadable)


def _sizes(domain: Domain, reader: Reader) -> dict[tuple[int, int] | None, int]:
    """Count the sizes of some images; None counts those that cannot be read."""
    step = -(-len(domain.items) // MAX_SIZE_SAMPLES) or 1
    sizes: Counter[tuple[int, int] | None] = Counter()
    for item in domain.items[::step]:
        try:
            content = reader.read(item)
            sizes[image_size(content) if isinstance(content, bytes) else (content.shape[1], content.shape[0])] += 1
        except (OSError, UnreadableError):  # `verify` reports the reasons
            sizes[None] += 1
    return dict(sizes.most_common())


def verify(root: Path, progress: ProgressCallback | None = None) -> list[Finding]:
    """Decode every image; compare images with split lists, the catalog and each other; return the problems."""
    return verify_benchmark(read_root(root), progress)


def verify_benchmark(benchmark: Benchmark, progress: ProgressCallback | None = None) -> list[Finding]:
    """Return the problems of a root that was read; those of a class folder are listed by class."""
    dataset = identify_dataset(benchmark.names)
    findings = [finding for domain in benchmark.domains for finding in _check_split_lists(domain)]
    by_class = is_class_folder(benchmark)
    owners = [
        (label if by_class else domain.name, item)
        for domain in benchmark.domains
        for label, item in zip(domain.labels, domain.items, strict=True)
    ]
    digests, reasons = _read_all([item for _, item in owners], progress)
    findings += [Finding("unreadable", owners[i][0], f"{owners[i][1].path}: {reasons[i]}") for i in sorted(reasons)]
    findings += [Finding("unreadable", "", f"{path}: {reason}") for path, reason in benchmark.skipped]
    findings += _find_duplicates(owners, digests)
    findings += _compare_counts(benchmark, dataset)
    findings += _find_empty_classes(benchmark.domains[0]) if by_class else _compare_classes(benchmark)
    return findings


def _check_split_lists(domain: Domain) -> Iterator[Finding]:
    for path in dict.fromkeys(domain.missing):
        yield Finding("missing", domain.name, f"{path} is listed but does not exist")
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


def _read_all(items: Sequence[Item], progress: ProgressCallback | None) -> tuple[dict[int, bytes], dict[int, str]]:
    """Return the content hash of each readable item, and why others cannot be read or decoded."""
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

    with Reader() as reader, show_progress("verify", progress) as report:
        for done in run_in_threads(work, len(items)):
            report(done, len(items))
    return digests, reasons


def _find_duplicates(owners: Sequence[tuple[str, Item]], digests: dict[int, bytes]) -> Iterator[Finding]:
    """Find images with the same content; under two classes or in two domains they can distort results."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for row in sorted(digests):
        groups[digests[row]].append(row)
    for rows in groups.values():
        if len(rows) > 1:
            domains = list(dict.fromkeys(owners[row][0] for row in rows))
            yield Finding(
                "duplicate",
                ", ".join(filter(None, domains)),
                f"same content: {_join_names(owners[r][1].path for r in rows)}",
            )


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    rest = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return ", ".join(listed[:6]) + rest


def _compare_counts(benchmark: Benchmark, dataset: Dataset | None) -> Iterator[Finding]:
    for domain in benchmark.domains:
        entry = find_entry(domain.name, dataset)
        if dataset and entry and entry.num_images not in (None, len(domain.items)):
            text = f"{len(domain.items)} images, {dataset.name} has {entry.num_images}"
            yield Finding("count", domain.name, text)


def _find_empty_classes(domain: Domain) -> Iterator[Finding]:
    for name, count in domain.counts().items():
        if not count:
            yield Finding("classes", name, "has no images")


def _compare_classes(benchmark: Benchmark) -> Iterator[Finding]:
    """Find classes that some domains have and others lack."""
    by_domain = {d.name: {label for label in d.labels if label and not is_ood(label)} for d in benchmark.domains}
    all_classes = set().union(*by_domain.values())
    for name, classes in by_domain.items():
        if missing := all_classes - classes:
            yield Finding("classes", name, f"lacks {_join_names(sorted(missing))}, which other domains have")
