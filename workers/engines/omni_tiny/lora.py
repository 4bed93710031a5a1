"""Low-rank changes to a frozen model's linear layers, kept apart until the served folder is built."""

from typing import Any

import torch
from torch import nn

RANK = 16
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraLinear(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A frozen linear layer plus a trained product of two thin matrices, nothing at first."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = self.base(x) + (x @ self.a.T.to(x.dtype)) @ self.b.T.to(x.dtype)
        return changed


def attach(layers: Any, first: int) -> dict[str, LoraLinear]:
    """Put one around every linear layer of `layers[first:]`; by the name of the layer's weight in the checkpoint."""
    attached: dict[str, LoraLinear] = {}
    for number in range(first, len(layers)):
        for block in ("self_attn", "mlp"):
            parent = getattr(layers[number], block)
            for projection in PROJECTIONS:
                if hasattr(parent, projection):
                    lora = LoraLinear(getattr(parent, projection))
                    setattr(parent, projection, lora)
                    attached[f"model.layers.{number}.{block}.{projection}.weight"] = lora
    return attached


def tensors(attached: dict[str, LoraLinear]) -> dict[str, torch.Tensor]:
    """What is kept of them: `<weight>.a` and `<weight>.b`, float16."""
    kept: dict[str, torch.Tensor] = {}
    for name, lora in attached.items():
        kept[f"{name}.a"], kept[f"{name}.b"] = lora.a.detach().half(), lora.b.detach().half()
    return kept
