"""Where the data sets of the catalog are published, as their publishers and users say.

No publisher states a sha256, so what comes is checked by the catalog's counts. Addresses of Google Drive may lead to
a page that asks to confirm a large file (`confirm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..data.catalog import Dataset, dataset_named
from ..errors import UserError, unknown
from .download import Remote


@dataclass(frozen=True)
class Source:
    """One publisher's files; all of them together are the data set."""

    told: str  # who, and where that is said
    files: tuple[Remote, ...]


@dataclass(frozen=True)
class Published:
    """A data set and where to get it, the first source first."""

    name: str  # in the catalog
    sources: tuple[Source, ...]
    by_hand: str  # for people: where, and what

    @property
    def dataset(self) -> Dataset:
        """What the catalog knows of it."""
        return dataset_named(self.name)


def _drive(file_id: str, name: str, more: str = "") -> tuple[Remote, ...]:
    return (Remote(f"https://drive.google.com/uc?export=download&id={file_id}{more}", name),)


def _tsinghua(**codes: str) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"https://cloud.tsinghua.edu.cn/f/{code}/?dl=1", f"{name}.tgz") for name, code in codes.items()
    )


_DASSL = "Dassl's archive (KaiyangZhou/Dassl.pytorch, DATASETS.md), which the paper's authors link to"
_DOMAINBED = "DomainBed's archive (facebookresearch/DomainBed, scripts/download.py)"
_TLLIB = "Transfer-Learning-Library's archives, one for each domain (thuml/Transfer-Learning-Library)"
_WEB = (
    "ask the authors of the paper, which names https://github.com/MetaVisionLab/SSDG, or make a crawl of your own "
    "with ssdg web crawl"
)

PUBLISHED = {
    "pacs": Published(
        "PACS",
        (
            Source(f"{_DASSL}, with split lists", _drive("1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE", "pacs.zip")),
            Source(_DOMAINBED, _drive("1JFr8f805nMUelQWWmfnJR3y4_SYoN5Pd", "PACS.zip")),
            Source(
                "a copy that the keeper of jindongwang/transferlearning names (issue 411)",
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
    "office-home": Published(
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
            Source(f"{_DASSL}; in train and val", _drive("1gkbf_KaxoBws-GWT3XIPZ7BnkqbAxIFa", "office_home_dg.zip")),
            Source(_DOMAINBED, _drive("1uY0pj7oFsjMxRwaD3Sxy0jgel0fsYXLC", "office_home.zip")),
            Source(
                "a copy of the same host as PACS's third, named by several repositories",
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
    "digits-dg": Published(
        "Digits-DG",
        (
            Source(_DASSL, _drive("15V7EsHfCcfbKgsDmzQKj_DfXt_XYp_P7", "digits_dg.zip")),
            Source(
                "a copy at Fuzhou University, the paper's authors' own, named in public lists of data sets",
                (Remote("https://csip.fzu.edu.cn/files/datasets/SSDG/digits_dg.zip", "digits_dg.zip"),),
            ),
        ),
        "digits_dg.zip from https://drive.google.com/file/d/15V7EsHfCcfbKgsDmzQKj_DfXt_XYp_P7/view",
    ),
    "pacs-web": Published("PACS-Webdata", (), _WEB),
    "office-web": Published("Office-Webdata", (), _WEB),
}


def find_published(name: str) -> Published:
    """The data set of that name on the command line."""
    if name not in PUBLISHED:
        raise unknown("data set", name, tuple(PUBLISHED))
    return PUBLISHED[name]


def chosen_sources(published: Published, wish: str | None) -> tuple[Source, ...]:
    """All known sources, or the one that is wished for: a number of them, or an address."""
    if wish is None:
        return published.sources
    if wish.isdecimal() and 1 <= int(wish) <= len(published.sources):
        return (published.sources[int(wish) - 1],)
    if urlsplit(wish).scheme in ("http", "https"):
        return (Source(wish, (Remote(wish, f"{published.name}.archive"),)),)
    known = f"a number from 1 to {len(published.sources)} or " if published.sources else ""
    raise UserError(f"--source {wish} is no known source of {published.name}; give {known}an http address")
