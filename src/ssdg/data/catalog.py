"""The benchmarks we know: domains and their short names, classes, counts, protocol, where to get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import UserError, suggest

Augment = Literal["photo", "none"]


@dataclass(frozen=True)
class DomainEntry:
    """One domain: its folder name, the paper's short name, other spellings, its expected size."""

    name: str
    short: str
    aliases: tuple[str, ...] = ()
    num_images: int | None = None


@dataclass(frozen=True)
class Dataset:
    """One benchmark and its protocol."""

    name: str
    domains: tuple[DomainEntry, ...]
    classes: tuple[str, ...]
    image_size: int
    augment: Augment
    validation_rate: float  # of a training domain, where no split files are given
    get: str
    licence: str
    web: str = ""  # the web-crawled domain, then the only unlabeled one unless others are asked for

    @property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """The twelve (labeled, target) pairs, in the order of the paper's tables."""
        names = [domain.name for domain in self.domains if domain.name != self.web]
        return tuple((labeled, target) for labeled in names for target in names if labeled != target)

    def short(self, domain: str) -> str:
        """The paper's short name of a domain given by its name."""
        return next(entry.short for entry in self.domains if entry.name == domain)


UNKNOWN_DATASET = Dataset("", (), (), 224, "photo", 0.1, "", "")  # the defaults for data of one's own

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
_EMBEDDED_GET = "built in: made on this machine from packages of the extra 'demo', nothing to download"
_PACS_GET = (
    "the PACS archive of the Deeper, Broader and Artier project page, unpacked as "
    "ROOT/images/<domain>/<class>/ with ROOT/splits/<domain>_{train,crossval,test}_kfold.txt; ssdg data fetch pacs"
)
_OFFICE_GET = (
    "the Office-Home archive of hemanthdv.org, unpacked as ROOT/<domain>/<class>/; ssdg data fetch office-home"
)
_WEB_GET = (
    "released on request by the authors of the paper, or crawl your own with the class names as queries; "
    "put the images into ROOT/web/<class>/ beside the four domains"
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


def plain(name: str) -> str:
    """A name without case, spaces and signs: 'Real World' and 'real_world' are the same."""
    return "".join(c for c in name.casefold() if c.isalnum())


def dataset_named(name: str) -> Dataset:
    """The benchmark of that very name."""
    return next(dataset for dataset in CATALOG if dataset.name == name)


def dataset_of(domains: Sequence[str]) -> Dataset | None:
    """The benchmark that shares most of these domain names: at least two, the fewest missing on a tie."""
    given = {plain(name) for name in domains}

    def score(dataset: Dataset) -> tuple[int, int]:
        here = sum(bool(given & _spellings(entry)) for entry in dataset.domains)
        return here, here - len(dataset.domains)

    best = max(CATALOG, key=score)  # the earlier one on a full tie
    return best if score(best)[0] >= 2 else None


def entry_of(domain: str, dataset: Dataset | None) -> DomainEntry | None:
    """What the catalog knows of a domain, by any of its spellings."""
    entries = dataset.domains if dataset else ()
    return next((entry for entry in entries if plain(domain) in _spellings(entry)), None)


def find_domain(given: str, domains: Sequence[str], dataset: Dataset | None) -> str:
    """The one of `domains` that is meant: exact, in any case, short name or other spelling."""
    if given in domains:
        return given
    for name in domains:
        if plain(name) == plain(given):
            return name
    entry = entry_of(given, dataset)
    for name in domains:
        if entry and plain(name) in _spellings(entry):
            return name
    known = ", ".join(_with_short(name, dataset) for name in domains)
    raise UserError(f"unknown domain '{given}'{suggest(given, list(domains))}; choose from {known}")


def _with_short(name: str, dataset: Dataset | None) -> str:
    """A domain, and the short name that tables give it."""
    entry = entry_of(name, dataset)
    return f"{name} ({entry.short})" if entry and plain(entry.short) != plain(name) else name


def _spellings(entry: DomainEntry) -> set[str]:
    return {plain(word) for word in (entry.name, entry.short, *entry.aliases)}
