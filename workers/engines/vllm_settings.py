"""How the engine is set up, as pure functions: what vLLM gets for a manifest, on a CPU and on a GPU."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from schemas.manifest import Manifest
from topics.steering.speed import Speed

# Prompt tokens a CPU computes in one step beside the decodes. A step takes about a second per 200 of them, and all who
# are streaming wait for it.
_CPU_STEP_TOKENS = 256


def engine_args(manifest: Manifest, path: Path, gpu: bool) -> dict[str, Any]:
    """The keyword arguments of vLLM's AsyncEngineArgs."""
    config = manifest.engine
    common: dict[str, Any] = {
        "model": str(path),
        "served_model_name": manifest.id,
        "max_model_len": manifest.limits.context_tokens,
        "max_logprobs": manifest.limits.max_logprobs,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,  # progress bars are for terminals; this goes to a log
        "scheduling_policy": "priority",
        "enable_logging_iteration_details": True,  # to us, not to a log: what was in each step, and how long it took
        # "auto" falls back to a second grammar engine for schemas the first cannot do, but a process can only run one:
        # such a request would fail inside the engine instead of being refused here.
        "structured_outputs_config": {"backend": "xgrammar"},
    }
    if takes_embeds(manifest):
        common["enable_prompt_embeds"] = True  # costs every step of a CPU or a GPU some time, hence not for all
    if gpu:
        return common | {
            "dtype": config.dtype,
            "block_size": config.block_tokens,
            "max_num_seqs": config.max_running,
        }
    return common | {
        "dtype": config.cpu_dtype,
        "block_size": config.cpu_block_tokens,
        "max_num_seqs": config.cpu_max_running,
        "max_num_batched_tokens": max(_CPU_STEP_TOKENS, config.cpu_max_running),
        "kv_cache_memory_bytes": config.cpu_kv_bytes,
        "enforce_eager": True,  # compiling takes two minutes and wins a tenth
    }


def takes_embeds(manifest: Manifest) -> bool:
    """Whether an encoder of the model yields embeddings for its prompts."""
    return any(encoder.yields == "embeddings" for encoder in manifest.encoders.values())


def placeholders(manifest: Manifest, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of the tokens in whose place rows stand.

    Raises:
        ValueError: the manifest names one that the tokenizer does not have.
    """
    found: set[int] = set()
    for kind, encoder in manifest.encoders.items():
        if encoder.yields != "embeddings":
            continue
        token_id = tokenizer.token_to_id(encoder.placeholder)
        if token_id is None:
            raise ValueError(f"{manifest.id}: encoders.{kind}.placeholder: {encoder.placeholder!r} is no token")
        found.add(token_id)
    return frozenset(found)


def prior_speed(gpu: bool) -> Speed:
    """What to believe of an engine that has not run anything; a CPU's is of a model of 135M parameters on one core."""
    if gpu:
        return Speed()
    return Speed(prefill_tokens_per_s=200.0, step_per_sequence_s=0.01, step_base_s=0.1)


def cpu_threads(cores: int) -> int:
    """OpenMP threads of one CPU engine: a quarter of the machine, for it shares it with its neighbours.

    On two busy cores one thread is fastest; a second one costs more in waiting than it computes.
    """
    return max(1, cores // 4)
