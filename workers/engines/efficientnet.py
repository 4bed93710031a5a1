"""EfficientNet-Lite0: which of ImageNet's thousand things a picture shows. The network is written out here, because
the usual libraries of vision models bring a torchvision that breaks a CPU torch."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as fn

from infra.model_files import ModelMissing

SIDE = 224  # pixels; what it was trained on
CLASSES = 1000
HEAD = 1280
NORM_EPS = 1e-3
# kernel, stride, growth inside, channels out, blocks
STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3), (5, 2, 6, 192, 4),
          (3, 1, 6, 320, 1))  # fmt: skip
WEIGHTS_FILE, SYNSETS_FILE, WORDS_FILE = "efficientnet-lite0.pth", "synsets.txt", "words.txt"


class Label(msgspec.Struct, frozen=True):
    name: str
    share: float  # 0 to 1; those of all labels add up to 1


class _Conv(nn.Conv2d):  # type: ignore[misc]  # torch is untyped to mypy here
    """Pads as TensorFlow does, where the network was trained: an odd pixel goes to the right and to the bottom."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (x.shape[3], x.shape[2])]
        x = fn.pad(x, [part for total in missing for part in (total // 2, total - total // 2)])
        out: torch.Tensor = fn.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)
        return out


def _layer(
    into: int, out: int, kernel: int, stride: int = 1, groups: int = 1, *, bounded: bool = True
) -> nn.Sequential:
    conv = _Conv(into, out, kernel, stride, groups=groups, bias=False)
    norm = nn.BatchNorm2d(out, eps=NORM_EPS)
    return nn.Sequential(conv, norm, nn.ReLU6()) if bounded else nn.Sequential(conv, norm)


class _Block(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Widened, seen channel by channel, narrowed; added to what came in where the shape is the same."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, growth: int) -> None:
        super().__init__()
        inner = into * growth
        widen = [_layer(into, inner, 1)] if growth > 1 else []
        narrow = _layer(inner, out, 1, bounded=False)
        self.body = nn.Sequential(*widen, _layer(inner, inner, kernel, stride, groups=inner), narrow)
        self.shortcut = stride == 1 and into == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.body(x)
        return x + made if self.shortcut else made


class Network(nn.Sequential):  # type: ignore[misc]  # torch is untyped to mypy here
    """[n, 3, 224, 224] in -1..1 -> [n, 1000]. Its tensors come in the order of the published checkpoint."""

    def __init__(self) -> None:
        blocks: list[nn.Module] = []
        into = 32
        for kernel, stride, growth, out, count in STAGES:
            for number in range(count):
                blocks.append(_Block(into, out, kernel, stride if number == 0 else 1, growth))
                into = out
        pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(HEAD, CLASSES)]
        super().__init__(_layer(3, 32, 3, 2), *blocks, _layer(into, HEAD, 1), *pool)


class Labeller:
    """Deterministic: in float64, of which rounding drops what the batch could change."""

    def __init__(self, network: Network, names: list[str]) -> None:
        self._network = network
        self._names = names

    @classmethod
    def load(cls, folder: Path) -> "Labeller":
        """Raises ModelMissing: a file is not there, or holds something else."""
        try:
            found = torch.load(folder / WEIGHTS_FILE, map_location="cpu", weights_only=True)
            return cls(filled(Network(), found), names(folder))
        except FileNotFoundError as error:
            raise ModelMissing(f"{error.filename} is missing; fetch it with `triptych models pull`") from error

    def label(self, pictures: list["np.ndarray[Any, np.dtype[np.uint8]]"], top: int) -> list[list[Label]]:
        """The `top` likeliest labels of each picture, [h, w, 3]; one forward for all."""
        if not pictures:
            return []
        with torch.inference_mode():
            shares = self._network(torch.stack([_prepared(one) for one in pictures])).softmax(dim=1)
        best = shares.topk(top, dim=1)
        return [
            [Label(self._names[place], share) for place, share in zip(places, values, strict=True)]
            for places, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def filled(network: Network, found: dict[str, torch.Tensor]) -> Network:
    """The network with the checkpoint's tensors, which bear other names but come in the same order.

    Raises:
        ModelMissing: their number or a shape differs.
    """
    wanted = network.state_dict()
    if len(found) != len(wanted):
        raise ModelMissing(f"the checkpoint has {len(found)} tensors, EfficientNet-Lite0 has {len(wanted)}")
    for (name, ours), (theirs, tensor) in zip(wanted.items(), found.items(), strict=True):
        if ours.shape != tensor.shape or name.rpartition(".")[2] != theirs.rpartition(".")[2]:
            raise ModelMissing(f"tensor {theirs} has shape {list(tensor.shape)}, {name} needs {list(ours.shape)}")
    network.load_state_dict(dict(zip(wanted, found.values(), strict=True)))
    network.double().eval()
    return network


def names(folder: Path) -> list[str]:
    """The word for each class: WordNet's ids in the order of the classes, and the first word of each.

    Raises:
        ModelMissing: there are not as many as classes. FileNotFoundError
    """
    words = dict(line.split("\t", 1) for line in (folder / WORDS_FILE).read_text("utf-8").splitlines())
    classes = (folder / SYNSETS_FILE).read_text("utf-8").split()
    if len(classes) != CLASSES:
        raise ModelMissing(f"{folder / SYNSETS_FILE} names {len(classes)} classes, not {CLASSES}")
    return [words[one].split(",")[0].strip() for one in classes]


def _prepared(rgb: "np.ndarray[Any, np.dtype[np.uint8]]") -> torch.Tensor:
    """The square in the middle, at the network's size, -1..1."""
    height, width = rgb.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = Image.fromarray(rgb[top : top + side, left : left + side]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.asarray(square).transpose(2, 0, 1) / 127.5 - 1.0)
