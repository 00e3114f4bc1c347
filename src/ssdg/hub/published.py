"""Where the datasets of the catalog are published, according to their publishers and users.

No publisher states a sha256, so downloads are verified by the image counts of the catalog. Google Drive may show a
page that asks to confirm the download of a large file (`transfer.find_confirmed_url`).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..data.catalog import Dataset, get_dataset
from ..errors import UserError, unknown
from .download import Remote


@dataclass(frozen=True)
class Source:
    """The files of one publisher; together they are the dataset."""

    description: str  # the publisher, and where the URL is documented
    files: tuple[Remote, ...]


@dataclass(frozen=True)
class PublishedDataset:
    """A dataset and its sources, in order of preference."""

    name: str  # in the catalog
    sources: tuple[Source, ...]
    by_hand: str  # instructions for a manual download

    @property
    def dataset(self) -> Dataset:
        """The entry of the catalog."""
        return get_dataset(self.name)


def _drive(file_id: str, name: str, more: str = "") -> tuple[Remote, ...]:
    return (Remote(f"https://drive.google.com/uc?export=download&id={file_id}{more}", name),)


def _tsinghua(**codes: str) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"https://cloud.tsinghua.edu.cn/f/{code}/?dl=1", f"{name}.tgz") for name, code in codes.items()
    )


_DASSL = "Dassl's archive (KaiyangZhou/Dassl.pytorch, DATASETS.md), linked by the authors of the paper"
_DOMAINBED = "DomainBed's archive (facebookresearch/DomainBed, scripts/download.py)"
_TLLIB = "Transfer-Learning-Library's archives, one for each domain (thuml/Transfer-Learning-Library)"
_WEB_BY_HAND = (
    "ask the authors of the paper (https://github.com/MetaVisionLab/SSDG), or build your own crawl "
    "with ssdg web crawl"
)

PUBLISHED = {
    "pacs": PublishedDataset(
        "PACS",
        (
            Source(f"{_DASSL}, with split lists", _drive("1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE", "pacs.zip")),
            Source(_DOMAINBED, _drive("1JFr8f805nMUelQWWmfnJR3y4_SYoN5Pd", "PACS.zip")),
            Source(
                "a copy named by the maintainer of jindongwang/transferlearning (issue 411)",
                (Remote("https://wjdcloud.blob.core.windows.net/dataset/PACS.zip", "PACS.zip"),),
            ),
            Source(
                _TLLIB,
                _tsinghua(
                    art_painting="4eb7db4f3eec41719856",
                    cartoon="d847ac22497b4826889f",
                    photo="458ad21483da4a45935b",
                    sketch="c892ac2d94a44b1196b8",
                ),
            ),
        ),
        "pacs.zip from https://drive.google.com/file/d/1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE/view",
    ),
    "office-home": PublishedDataset(
        "Office-Home",
        (
            Source(
                "the archive of its authors (hemanthdv.org)",
                _drive(
                    "0B81rNlvomiwed0V1YUxQdC1uOTg",
                    "OfficeHomeDataset_10072016.zip",
                    "&resourcekey=0-2SNWq0CDAuWOBRRBL7ZZsw",
                ),
            ),
            Source(
                f"{_DASSL}, split into train and val",
                _drive("1gkbf_KaxoBws-GWT3XIPZ7BnkqbAxIFa", "office_home_dg.zip"),
            ),
            Source(_DOMAINBED, _drive("1uY0pj7oFsjMxRwaD3Sxy0jgel0fsYXLC", "office_home.zip")),
            Source(
                "a copy on the host of the third source of PACS, named by several repositories",
                (Remote("https://wjdcloud.blob.core.windows.net/dataset/OfficeHome.zip", "OfficeHome.zip"),),
            ),
            Source(
                _TLLIB,
                _tsinghua(
                    Art="4691878067d04755beab",
                    Clipart="0d41e7da4558408ea5aa",
                    Product="76186deacd7c4fa0a679",
                    Real_World="dee961894cc64b1da1d7",
                ),
            ),
        ),
        "OfficeHomeDataset_10072016.zip from https://www.hemanthdv.org/officeHomeDataset.html",
    ),
    "digits-dg": PublishedDataset(
        "Digits-DG",
        (
            Source(_DASSL, _drive("15V7EsHfCcfbKgsDmzQKj_DfXt_XYp_P7", "digits_dg.zip")),
            Source(
                "a copy at Fuzhou University, by the authors of the paper, named in public lists of datasets",
                (Remote("https://csip.fzu.edu.cn/files/datasets/SSDG/digits_dg.zip", "digits_dg.zip"),),
            ),
        ),
        "digits_dg.zip from https://drive.google.com/file/d/15V7EsHfCcfbKgsDmzQKj_DfXt_XYp_P7/view",
    ),
    "pacs-web": PublishedDataset("PACS-Webdata", (), _WEB_BY_HAND),
    "office-web": PublishedDataset("Office-Webdata", (), _WEB_BY_HAND),
}


def find_published(name: str) -> PublishedDataset:
    """Return the dataset with the given command-line name."""
    if name not in PUBLISHED:
        raise unknown("dataset", name, tuple(PUBLISHED))
    return PUBLISHED[name]


def select_sources(published: PublishedDataset, choice: str | None) -> tuple[Source, ...]:
    """Return all known sources, or the one chosen by number or URL."""
    if choice is None:
        return published.sources
    if choice.isdecimal() and 1 <= int(choice) <= len(published.sources):
        return (published.sources[int(choice) - 1],)
    if urlsplit(choice).scheme in ("http", "https"):
        return (Source(choice, (Remote(choice, f"{published.name}.archive"),)),)
    known = f"a number from 1 to {len(published.sources)} or " if published.sources else ""
    raise UserError(f"--source {choice} is not a source of {published.name}; use {known}an http URL")
