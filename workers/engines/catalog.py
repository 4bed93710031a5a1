"""Engines by name. Each is imported only when chosen, so that a stub worker never pays for torch."""

from pathlib import Path

from schemas.manifest import Manifest
from topics.steering import namespaces
from workers.engine import Engine
from workers.options import WorkerOptions

STUB_SLOTS = 256


def build(options: WorkerOptions, manifest: Manifest, model_dir: Path) -> Engine:
    """The engine that `--engine` names; nothing is loaded yet."""
    match options.engine:
        case "stub":
            from workers.engines.stub import StubEngine

            slots = options.slots or STUB_SLOTS
            return StubEngine(slots, options.step_s, first_token_s=options.first_s)
        case "sim":
            from workers.engines.sim import SimEngine
            from workers.engines.sim_parts import SimParams

            space = namespaces.of_model(manifest, model_dir)
            params = SimParams(block_tokens=space.block_tokens)
            return SimEngine(params, space.plain, options.speedup)
        case "vllm":
            from workers.engines.vllm import VllmEngine

            return VllmEngine(manifest, model_dir / manifest.id)
