import pytest

from ssdg.data.catalog import CATALOG, find_domain, identify_dataset
from ssdg.errors import UserError

BY_NAME = {dataset.name: dataset for dataset in CATALOG}
PACS = ("art_painting", "cartoon", "photo", "sketch")


@pytest.mark.parametrize(
    ("domains", "name"),
    [
        (PACS, "PACS"),
        ((*PACS, "web"), "PACS-Webdata"),
        (("Art", "Clipart", "Product", "Real World"), "Office-Home"),
        (("art", "clipart", "product", "real_world", "web"), "Office-Webdata"),
        (("mnist", "mnist_m", "svhn", "syn"), "Digits-DG"),
        (("mnist", "mnist_m", "optdigits", "syn"), "digits"),
        (("mnist", "mnist_m", "optdigits", "syn", "web"), "web-digits"),
        (("mnist", "mnist_m", "svhn", "syn", "web"), "Digits-DG"),
        (("chars74k_font", "mnist", "mnist_m", "svhn", "usps"), "Digits-DG"),
    ],
)
def test_roots_are_known_by_their_domains(domains, name):
    assert identify_dataset(domains) is BY_NAME[name]


def test_strangers_are_not():
    assert identify_dataset(("web",)) is None
    assert identify_dataset(("left", "right", "photo")) is None


@pytest.mark.parametrize("query", ["P", "p", "photo", "PHOTO"])
def test_domain_names(query):
    assert find_domain(query, PACS, BY_NAME["PACS"]) == "photo"


@pytest.mark.parametrize("query", ["Rw", "Real_World", "real world", "RealWorld"])
def test_real_world_has_many_spellings(query):
    assert find_domain(query, ("Art", "Real World"), BY_NAME["Office-Home"]) == "Real World"


def test_unknown_domain_is_suggested():
    with pytest.raises(UserError, match=r"unknown domain 'skech' \(did you mean 'sketch'\?\); choose from art"):
        find_domain("skech", PACS, BY_NAME["PACS"])


def test_unknown_domain_names_the_short_names_too():
    with pytest.raises(UserError, match=r"unknown domain 'A'; choose from Art \(Ar\), Real World \(Rw\)$"):
        find_domain("A", ("Art", "Real World"), BY_NAME["Office-Home"])


def test_twelve_tasks_in_the_papers_order():
    pacs = BY_NAME["PACS"]
    assert [f"{pacs.short(a)}>{pacs.short(b)}" for a, b in pacs.tasks] == (
        ["P>A", "P>C", "P>S", "A>P", "A>C", "A>S", "C>P", "C>A", "C>S", "S>P", "S>A", "S>C"]
    )
    assert all(len(dataset.tasks) == 12 for dataset in CATALOG)
    assert not any("web" in task for task in BY_NAME["PACS-Webdata"].tasks)


def test_counts_are_the_published_ones():
    assert sum(entry.num_images for entry in BY_NAME["PACS"].domains) == 9991
    assert sum(entry.num_images for entry in BY_NAME["Office-Home"].domains) == 15588
    assert len(BY_NAME["Office-Home"].classes) == 65


def test_short_names_are_unambiguous():
    for dataset in CATALOG:
        words = [w for e in dataset.domains for w in {e.name.lower(), e.short.lower()}]
        assert len(words) == len(set(words))
