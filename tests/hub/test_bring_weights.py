"""ImageNet weights of ResNets: downloaded with patience, checked by the digits in their names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from hub.publishers import plain, ranged
from ssdg.engine.setup import try_backbone
from ssdg.errors import UserError
from ssdg.hub.download import Downloader, download_imagenet_weights
from ssdg.hub.transfer import Limits
from ssdg.models import weights
from ssdg.models.backbones import build_backbone
from web.servers import Site

QUICK = Downloader(Limits(first_wait=0, idle_seconds=20))


@pytest.fixture
def hub(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty torch.hub folder; torchvision's server is ours."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setattr(weights, "TORCHVISION", f"{site.url}/models")
    return tmp_path / "home" / "hub" / "checkpoints"


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The file of a ResNet-18, and its name with its hash."""
    torch.manual_seed(7)
    torch.save(build_backbone("resnet18").state_dict(), tmp_path / "w.pth")
    data = (tmp_path / "w.pth").read_bytes()
    monkeypatch.setitem(weights.RESNET_FILES, "resnet18", f"resnet18-{hashlib.sha256(data).hexdigest()[:8]}.pth")
    return data


def test_a_run_brings_the_weights_over_a_broken_line(site: Site, hub: Path, content: bytes) -> None:
    file = weights.RESNET_FILES["resnet18"]
    site.routes = {f"/models/{file}": ranged(content, breaks=1)}
    download_imagenet_weights("resnet18", "imagenet", QUICK)
    assert (hub / file).read_bytes() == content
    try_backbone("resnet18", "imagenet", 32, "cpu")
    assert site.num_requests == 2, "not downloaded again"
    assert [path.name for path in hub.iterdir() if not path.name.startswith(".")] == [file]


def test_opening_a_run_downloads(site: Site, hub: Path, content: bytes) -> None:
    file = weights.RESNET_FILES["resnet18"]
    site.routes = {f"/models/{file}": plain(content)}
    try_backbone("resnet18", "imagenet", 33, "cpu")
    assert (hub / file).read_bytes() == content


@pytest.mark.parametrize(
    ("name", "source"), [("resnet18", "none"), ("digits-cnn", "imagenet"), ("timm:x", "imagenet")]
)
def test_nothing_else_is_downloaded(site: Site, hub: Path, name: str, source: str) -> None:
    download_imagenet_weights(name, source, QUICK)
    assert site.num_requests == 0
    assert not hub.exists()


def test_a_wrong_hash_is_refused(site: Site, hub: Path, content: bytes) -> None:
    file = weights.RESNET_FILES["resnet18"]
    site.routes = {f"/models/{file}": plain(content + b"more")}
    with pytest.raises(UserError, match="unexpected content") as caught:
        download_imagenet_weights("resnet18", "imagenet", QUICK)
    assert "weights=FILE" in str(caught.value)
    assert not (hub / file).exists()


def test_a_failed_download_is_reported_with_all_alternatives(site: Site, hub: Path) -> None:
    with pytest.raises(UserError) as caught:
        download_imagenet_weights("resnet50", "imagenet", QUICK)
    message = str(caught.value)
    assert all(
        word in message for word in ("404", "resnet50-0676ba61.pth", str(hub), "weights=none", "ssdg[pretrained]")
    )
    assert "\n" not in message


def test_a_folder_that_is_not_writable_is_reported(site: Site, hub: Path) -> None:
    hub.parent.mkdir(parents=True)
    hub.write_text("a file in the way")
    with pytest.raises(UserError, match=r"could not be downloaded .* put that file into"):
        download_imagenet_weights("resnet18", "imagenet", QUICK)
