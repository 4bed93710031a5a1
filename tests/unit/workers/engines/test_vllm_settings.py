from pathlib import Path

import msgspec
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from schemas.manifest import Encoder, EngineConfig, Limits, Manifest, Source
from workers.engines.vllm_settings import cpu_threads, engine_args, placeholders

MANIFEST = Manifest(
    "m",
    Source("hf", repo="o/m"),
    Limits(context_tokens=2048, max_logprobs=5),
    EngineConfig(dtype="bfloat16", max_running=64, block_tokens=16, cpu_max_running=8, cpu_kv_bytes=1 << 28),
)


def test_a_cpu_gets_what_its_build_of_vllm_can_do() -> None:
    arguments = engine_args(MANIFEST, Path("/models/m"), gpu=False)
    assert arguments["dtype"] == "float32" and arguments["enforce_eager"] is True
    assert arguments["block_size"] == 32 and arguments["max_num_seqs"] == 8
    assert arguments["kv_cache_memory_bytes"] == 1 << 28


def test_a_gpu_gets_the_manifests_own_values_and_decides_the_rest_itself() -> None:
    arguments = engine_args(MANIFEST, Path("/models/m"), gpu=True)
    assert arguments["dtype"] == "bfloat16" and arguments["block_size"] == 16 and arguments["max_num_seqs"] == 64
    assert not {"kv_cache_memory_bytes", "enforce_eager", "max_num_batched_tokens"} & set(arguments)


@pytest.mark.parametrize("gpu", [True, False])
def test_both_cache_prefixes_obey_priorities_and_keep_to_the_limits(gpu: bool) -> None:
    arguments = engine_args(MANIFEST, Path("/models/m"), gpu)
    assert arguments["model"] == "/models/m" and arguments["enable_prefix_caching"] is True
    assert arguments["scheduling_policy"] == "priority"
    assert arguments["max_model_len"] == 2048 and arguments["max_logprobs"] == 5


def test_one_grammar_engine_is_named_so_that_an_unsupported_schema_is_refused_at_the_door() -> None:
    assert engine_args(MANIFEST, Path("m"), gpu=False)["structured_outputs_config"] == {"backend": "xgrammar"}


@pytest.mark.parametrize("gpu", [True, False])
def test_only_a_model_whose_encoders_yield_embeddings_pays_for_taking_them(gpu: bool) -> None:
    """The arguments of a text model are those that it had before there were any."""
    seeing = msgspec.structs.replace(MANIFEST, encoders={"vision": Encoder("e", "embeddings", placeholder="<p>")})
    telling = msgspec.structs.replace(MANIFEST, encoders={"vision": Encoder("e", "text")})
    plain = engine_args(MANIFEST, Path("m"), gpu)
    assert "enable_prompt_embeds" not in plain and engine_args(telling, Path("m"), gpu) == plain
    assert engine_args(seeing, Path("m"), gpu) == plain | {"enable_prompt_embeds": True}


def test_placeholders_are_tokens_of_the_model_or_the_manifest_is_wrong() -> None:
    tokenizer = Tokenizer(WordLevel({"<p>": 3, "<s>": 4}, unk_token="<s>"))
    both = {"vision": Encoder("e", "embeddings", placeholder="<p>"), "audio": Encoder("e", "text")}
    assert placeholders(msgspec.structs.replace(MANIFEST, encoders=both), tokenizer) == {3}
    assert placeholders(MANIFEST, tokenizer) == frozenset()
    wrong = {"audio": Encoder("e", "embeddings", placeholder="<q>")}
    with pytest.raises(ValueError, match=r"m: encoders\.audio\.placeholder: '<q>'"):
        placeholders(msgspec.structs.replace(MANIFEST, encoders=wrong), tokenizer)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 1), (8, 2), (64, 16)])
def test_a_cpu_engine_takes_a_quarter_of_the_machine(cores: int, threads: int) -> None:
    assert cpu_threads(cores) == threads
