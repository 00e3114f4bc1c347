"""ImageNet weights of ResNets, brought into torch.hub's folder before a network asks for them."""

from __future__ import annotations

from ..files import locked
from ..models.weights import RESNET_FILES, hub_folder, not_downloaded, resnet_address, told_hash
from .download import Downloader, Remote
from .failure import Failed


def bring_imagenet(backbone: str, weights: str, downloader: Downloader | None = None) -> None:
    """Download what `backbone` with `weights` will read, unless it is there; other backbones bring their own."""
    file = RESNET_FILES.get(backbone)
    if weights != "imagenet" or file is None:
        return
    folder = hub_folder()
    if (folder / file).is_file():
        return
    remote = Remote(resnet_address(backbone), file, told_hash(file))
    try:
        with locked(folder / f".{file}.lock"):  # of several processes one downloads, the others wait
            (downloader or Downloader()).get(remote, folder)
    except (Failed, OSError) as failure:
        raise not_downloaded(backbone, str(failure)) from None
