"""Catalog of known benchmarks: domains and their short names, classes, counts, protocol, where to get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UserError, suggest
from .sets import DataKind


@dataclass(frozen=True)
class DomainEntry:
    """Domain of a benchmark: folder name, short name in the paper, other spellings, expected number of images."""

    name: str
    short: str
    aliases: tuple[str, ...] = ()
    num_images: int | None = None


@dataclass(frozen=True)
class Dataset:
    """Benchmark and its protocol."""

    name: str
    domains: tuple[DomainEntry, ...]
    classes: tuple[str, ...]
    image_size: int
    augment: DataKind
    validation_rate: float  # of a training domain without split files
    get: str
    licence: str
    web: str = ""  # the web-crawled domain, which is the only unlabeled one by default

    @property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """All (labeled, target) pairs, in the order of the paper's tables."""
        names = [domain.name for domain in self.domains if domain.name != self.web]
        return tuple((labeled, target) for labeled in names for target in names if labeled != target)

    def short(self, domain: str) -> str:
        """Return the paper's short name of a domain."""
        return next(entry.short for entry in self.domains if entry.name == domain)


UNKNOWN_DATASET = Dataset("", (), (), 224, "photo", 0.1, "", "")  # defaults for custom data

_PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
# fmt: off
_OFFICE_CLASSES = (
    "Alarm_Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle", "Bucket", "Calculator", "Calendar",
    "Candles", "Chair", "Clipboards", "Computer", "Couch", "Curtains", "Desk_Lamp", "Drill", "Eraser",
    "Exit_Sign", "Fan", "File_Cabinet", "Flipflops", "Flowers", "Folder", "Fork", "Glasses", "Hammer",
    "Helmet", "Kettle", "Keyboard", "Knives", "Lamp_Shade", "Laptop", "Marker", "Monitor", "Mop", "Mouse",
    "Mug", "Notebook", "Oven", "Pan", "Paper_Clip", "Pen", "Pencil", "Postit_Notes", "Printer", "Push_Pin",
    "Radio", "Refrigerator", "Ruler", "Scissors", "Screwdriver", "Shelf", "Sink", "Sneakers", "Soda",
    "Speaker", "Spoon", "TV", "Table", "Telephone", "ToothBrush", "Toys", "Trash_Can", "Webcam",
)
# fmt: on
_DIGITS = tuple("0123456789")

_PACS_DOMAINS = (
    DomainEntry("photo", "P", num_images=1670),
    DomainEntry("art_painting", "A", ("art",), 2048),
    DomainEntry("cartoon", "C", num_images=2344),
    DomainEntry("sketch", "S", num_images=3929),
)
_OFFICE_DOMAINS = (
    DomainEntry("Art", "Ar", num_images=2427),
    DomainEntry("Clipart", "Cl", num_images=4365),
    DomainEntry("Product", "Pr", num_images=4439),
    DomainEntry("Real_World", "Rw", ("real", "RealWorld"), 4357),
)
_MNIST = DomainEntry("mnist", "Mn", num_images=6000)
_MNIST_M = DomainEntry("mnist_m", "Mm", num_images=6000)
_EMBEDDED_DOMAINS = (
    DomainEntry("mnist", "Mn"),
    DomainEntry("mnist_m", "Mm"),
    DomainEntry("optdigits", "Op"),
    DomainEntry("syn", "Sy"),
)
_EMBEDDED_GET = "built in: generated locally from packages of the extra 'demo', nothing to download"
_PACS_GET = (
    "the PACS archive of the Deeper, Broader and Artier project page, unpacked as "
    "ROOT/images/<domain>/<class>/ with ROOT/splits/<domain>_{train,crossval,test}_kfold.txt; ssdg data fetch pacs"
)
_OFFICE_GET = (
    "the Office-Home archive of hemanthdv.org, unpacked as ROOT/<domain>/<class>/; ssdg data fetch office-home"
)
_WEB_GET = (
    "released on request by the authors of the paper, or crawl your own with the class names as queries; "
    "put the images into ROOT/web/<class>/ next to the four domains"
)

CATALOG: tuple[Dataset, ...] = (
    Dataset("PACS", _PACS_DOMAINS, _PACS_CLASSES, 224, "photo", 0.1, _PACS_GET, "research use, none stated"),
    Dataset(
        "Digits-DG",
        (
            _MNIST,
            _MNIST_M,
            DomainEntry("svhn", "Sv", num_images=6000),
            DomainEntry("syn", "Sy", ("synthetic", "syn_digits"), 6000),
        ),
        _DIGITS,
        32,
        "none",
        0.2,
        "the Digits-DG archive of DDAIG's authors, unpacked as ROOT/<domain>/{train,val}/<class>/; or one "
        ".npz file per domain; ssdg data fetch digits-dg",
        "MNIST: CC BY-SA 3.0; SVHN: non-commercial use; MNIST-M and Synthetic digits: research use",
    ),
    Dataset(
        "Office-Home",
        _OFFICE_DOMAINS,
        _OFFICE_CLASSES,
        224,
        "photo",
        0.1,
        _OFFICE_GET,
        "non-commercial research and education",
    ),
    Dataset(
        "PACS-Webdata",
        (*_PACS_DOMAINS, DomainEntry("web", "Web", ("webdata", "pacs_webdata"), 5243)),
        _PACS_CLASSES,
        224,
        "photo",
        0.1,
        _WEB_GET,
        "the images belong to their owners",
        web="web",
    ),
    Dataset(
        "Office-Webdata",
        (*_OFFICE_DOMAINS, DomainEntry("web", "Web", ("webdata", "office_webdata"))),
        _OFFICE_CLASSES,
        224,
        "photo",
        0.1,
        _WEB_GET,
        "the images belong to their owners",
        web="web",
    ),
    Dataset(
        "digits",
        _EMBEDDED_DOMAINS,
        _DIGITS,
        32,
        "none",
        0.2,
        _EMBEDDED_GET,
        "MNIST: CC BY-SA 3.0; optdigits: CC BY 4.0; photographs of mnist_m: as scikit-learn and -image state",
    ),
    Dataset(
        "web-digits",
        (*_EMBEDDED_DOMAINS, DomainEntry("web", "Web")),
        _DIGITS,
        32,
        "none",
        0.2,
        _EMBEDDED_GET,
        "as digits; photographs of web: as scikit-image and matplotlib state",
        web="web",
    ),
)


def normalize_name(name: str) -> str:
    """Remove case, spaces and punctuation: 'Real World' and 'real_world' become the same."""
    return "".join(c for c in name.casefold() if c.isalnum())


def get_dataset(name: str) -> Dataset:
    """Return the benchmark with exactly this name."""
    return next(dataset for dataset in CATALOG if dataset.name == name)


def identify_dataset(domains: Sequence[str]) -> Dataset | None:
    """Return the benchmark that shares most of these domain names: at least two, the fewest missing on a tie."""
    names = {normalize_name(name) for name in domains}

    def score(dataset: Dataset) -> tuple[int, int]:
        num_matches = sum(bool(names & _spellings(entry)) for entry in dataset.domains)
        return num_matches, num_matches - len(dataset.domains)

    best = max(CATALOG, key=score)  # the first one on a full tie
    return best if score(best)[0] >= 2 else None


def find_entry(domain: str, dataset: Dataset | None) -> DomainEntry | None:
    """Find the catalog entry of a domain by any of its spellings."""
    entries = dataset.domains if dataset else ()
    return next((entry for entry in entries if normalize_name(domain) in _spellings(entry)), None)


def find_domain(query: str, domains: Sequence[str], dataset: Dataset | None) -> str:
    """Find a domain by its exact name, its name in any case, its short name or another spelling."""
    if query in domains:
        return query
    for name in domains:
        if normalize_name(name) == normalize_name(query):
            return name
    entry = find_entry(query, dataset)
    for name in domains:
        if entry and normalize_name(name) in _spellings(entry):
            return name
    choices = ", ".join(_with_short(name, dataset) for name in domains)
    raise UserError(f"unknown domain '{query}'{suggest(query, list(domains))}; choose from {choices}")


def _with_short(name: str, dataset: Dataset | None) -> str:
    """Return a domain's name, with its short name in tables if that differs."""
    entry = find_entry(name, dataset)
    return f"{name} ({entry.short})" if entry and normalize_name(entry.short) != normalize_name(name) else name


def _spellings(entry: DomainEntry) -> set[str]:
    return {normalize_name(name) for name in (entry.name, entry.short, *entry.aliases)}
