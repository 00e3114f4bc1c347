"""Backbones of other packages: a fake package tests the wrapper, the real packages the rest."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ssdg.errors import UserError
from ssdg.models.backbones import build_backbone
from ssdg.models.external import ExternalBackbone, has_depthwise
from ssdg.models.layers import StyleConfusor, attach_style


class ToyConvNet(nn.Module):
    """Four stages of stride 2 that end in (B, 6) features, with timm's attributes."""

    def __init__(self, kind: str, fixed: bool) -> None:
        super().__init__()
        self.kind = kind
        widths = (3, 4, 4, 4, 6)
        self.stages = nn.ModuleList(nn.Conv2d(widths[i], widths[i + 1], 3, 2, 1) for i in range(4))
        self.feature_info = [{"module": f"stages.{i}"} for i in range(4)]
        self.default_cfg = {"classifier": "head", "fixed_input_size": fixed}

    def forward_features(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        assert pre_logits
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x), pre_logits=True)


class ChannelsAtTheEnd(nn.Module):
    """Stage that outputs maps (B, h, w, C), as Swin transformers do."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.LazyConv2d(channels, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2) if x.shape[1] != 3 else x
        return self.conv(x).permute(0, 2, 3, 1)


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A fake `timm` with the few functions in use; returns the calls to create_model."""
    calls: list[dict[str, Any]] = []
    timm, data = ModuleType("timm"), ModuleType("timm.data")

    def create_model(name: str, **settings: Any) -> nn.Module:
        calls.append({"name": name, **settings})
        if settings["pretrained"]:
            raise OSError("no route to the hub\nand more lines")
        return ToyConvNet(name, fixed="fixed" in name)

    names = ["toy", "toy_fixed"]
    timm.is_model, timm.list_models, timm.create_model = names.__contains__, lambda: names, create_model
    data.resolve_model_data_config = lambda net: {
        "mean": (0.1, 0.2, 0.3),
        "std": (0.5, 0.5, 0.5),
        "input_size": (3, 64, 64),
    }
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return calls


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("timm:resnet18", "timm", "timm"), ("hf:resnet", "transformers", "hf")]
)
def test_a_missing_package_is_answered_with_the_pip_line(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError) as caught:
        build_backbone(name)
    message = str(caught.value)
    assert message.startswith(f"backbone '{name}' needs the package {package}, which cannot be imported")
    assert message.endswith(f"run pip install 'ssdg[{extra}]'")


def test_a_package_that_breaks_at_import_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"RuntimeError: operator torchvision::nms .*pip install 'ssdg\[timm\]'"):
        build_backbone("timm:resnet18")


def test_a_timm_model_gets_the_common_interface(fake_timm: list[dict[str, Any]]) -> None:
    net = build_backbone("timm:toy")
    assert fake_timm == [{"name": "toy", "pretrained": False, "num_classes": 0}]
    assert (net.num_features, net.min_size, net.prefers_bf16, net.training) == (6, 32, True, True)
    x = torch.rand(2, 3, 40, 40)
    normalized = (x - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / 0.5
    torch.testing.assert_close(net(x), net.net(normalized))
    assert net.style_stages == tuple(net.net.stages[:3])
    with torch.autocast("cpu", torch.bfloat16):
        assert net(x).dtype == torch.float32


def test_styles_attach_to_a_timm_model(fake_timm: list[dict[str, Any]]) -> None:
    net = build_backbone("timm:toy")
    keys = list(net.state_dict())
    x = torch.rand(4, 3, 32, 32)
    plain = net(x)
    attach_style(net, StyleConfusor)
    assert list(net.state_dict()) == keys
    assert not torch.allclose(net(x), plain, rtol=1e-3)
    torch.testing.assert_close(net.eval()(x), plain)


def test_maps_and_pool_are_the_forward_pass_of_a_timm_model(fake_timm: list[dict[str, Any]]) -> None:
    net, x = build_backbone("timm:toy").eval(), torch.rand(2, 3, 64, 64)
    assert net.maps(x).shape == (2, 6, 4, 4)
    assert torch.equal(net.pool(net.maps(x)), net(x))


def test_a_model_of_one_size_refuses_others(fake_timm: list[dict[str, Any]]) -> None:
    net = build_backbone("timm:toy_fixed")
    assert net(torch.rand(1, 3, 64, 64)).shape == (1, 6)
    with pytest.raises(UserError, match="'timm:toy_fixed' takes images of only 64x64 px, not 96x96"):
        net(torch.rand(1, 3, 96, 96))


def test_a_weight_file_fills_a_timm_model(fake_timm: list[dict[str, Any]], tmp_path: Path) -> None:
    state = ToyConvNet("toy", fixed=False).state_dict()
    torch.save({**state, "head.weight": torch.zeros(3, 6)}, tmp_path / "w.pth")
    net = build_backbone("timm:toy", str(tmp_path / "w.pth"))
    assert torch.equal(net.net.stages[3].weight, state["stages.3.weight"])


def test_timm_errors_are_sentences(fake_timm: list[dict[str, Any]]) -> None:
    with pytest.raises(UserError, match=r"timm has no model 'toyy' \(did you mean 'toy'\?\)"):
        build_backbone("timm:toyy")
    with pytest.raises(UserError, match="cannot be built") as caught:
        build_backbone("timm:toy", "imagenet")
    assert "OSError: no route to the hub)" in str(caught.value)


def test_maps_with_channels_at_the_end_are_not_taken_for_maps() -> None:
    net = nn.Sequential(ChannelsAtTheEnd(5), ChannelsAtTheEnd(7), ChannelsAtTheEnd(9), nn.Flatten(1, 2))
    wrapped = ExternalBackbone("toy", nn.Sequential(net, nn.AdaptiveAvgPool1d(4), nn.Flatten()),
                               stages=("0.0", "0.1", "0.2"), size=32)  # fmt: skip
    with pytest.raises(UserError, match="'toy' does not have three stages of feature maps"):
        attach_style(wrapped, StyleConfusor)


def test_only_a_convolution_of_lone_channels_is_depthwise() -> None:
    assert has_depthwise(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8)))
    assert not has_depthwise(nn.Sequential(nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(1, 8, 3)))
    lone = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert not ExternalBackbone("toy", lone, stages=(), size=32).prefers_bf16


needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs pip install 'ssdg[hf]'"
)


@pytest.fixture
def hf_folder(tmp_path: Path) -> Path:
    """A tiny ResNet of transformers, saved with weights and a custom normalization."""
    import transformers

    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 6, 8, 10], depths=[1, 1, 1, 1], layer_type="basic"
    )
    transformers.AutoBackbone.from_config(config).save_pretrained(tmp_path)
    settings = {"image_processor_type": "ConvNextImageProcessor", "image_mean": [0.5, 0.4, 0.3]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    return tmp_path


@needs_transformers
def test_a_transformers_folder_is_built_without_a_network(hf_folder: Path) -> None:
    net = build_backbone(f"hf:{hf_folder}")
    assert net.num_features == 10
    assert net(torch.rand(2, 3, 64, 64)).shape == (2, 10)
    torch.testing.assert_close(net.normalize.mean.flatten(), torch.tensor([0.5, 0.4, 0.3]))
    torch.testing.assert_close(net.normalize.std.flatten(), torch.tensor([0.229, 0.224, 0.225]))
    keys = list(net.state_dict())
    attach_style(net, StyleConfusor)
    assert list(net.state_dict()) == keys
    net(torch.rand(4, 3, 64, 64)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@needs_transformers
def test_published_weights_of_a_transformers_folder_are_loaded(hf_folder: Path) -> None:
    x = torch.rand(2, 3, 64, 64)
    first, second = (build_backbone(f"hf:{hf_folder}", "imagenet") for _ in range(2))
    assert first.training
    torch.testing.assert_close(first.eval()(x), second.eval()(x))
    untrained = build_backbone(f"hf:{hf_folder}").eval()
    assert not torch.allclose(untrained(x), first(x))


@needs_transformers
def test_a_weight_file_fills_a_transformers_model(hf_folder: Path) -> None:
    expected = build_backbone(f"hf:{hf_folder}", "imagenet").state_dict()
    got = build_backbone(f"hf:{hf_folder}", str(hf_folder / "model.safetensors")).state_dict()
    assert all(torch.equal(got[k], v) for k, v in expected.items())


@needs_transformers
def test_transformers_errors_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model type without published weights"):
        build_backbone("hf:resnet", "imagenet")
    with pytest.raises(UserError, match="'hf:bert' cannot be built"):
        build_backbone("hf:bert")
    with pytest.raises(UserError, match="cannot be built"):
        build_backbone(f"hf:{tmp_path}")
