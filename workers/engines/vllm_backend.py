"""The calls into vLLM. Importing this file imports torch and vLLM (about 10 s): only `vllm.py` does, in a thread."""

import logging
import re
from collections.abc import Sequence
from typing import Any

import psutil
from vllm import AsyncEngineArgs, SamplingParams
from vllm.config import KVEventsConfig
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics.loggers import StatLoggerBase

from infra import settings
from schemas.jobs import GenerateJob
from workers.engine import CacheShape, Item, Rows, Unrunnable
from workers.engines import vllm_prompt
from workers.engines.vllm_events import EventStream
from workers.engines.vllm_load import LoadBoard

__all__ = ["EngineDeadError", "EngineGenerateError", "VLLMValidationError", "tokens_input"]

log = logging.getLogger(__name__)

_LAST_WAIT_S = 5.0
# xgrammar's messages begin with the time and the place in its own source.
_SOURCE_POSITION = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ")


class BoardWriter(StatLoggerBase):  # type: ignore[misc]  # vLLM is not type-checked here
    """vLLM calls this once a step, in our process."""

    def __init__(self, board: LoadBoard) -> None:
        self._board = board

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        self._board.record(scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


class Live:
    """A running AsyncLLM and the processes it started."""

    def __init__(self, llm: AsyncLLM, processes: list[psutil.Process]) -> None:
        self.llm = llm
        self.processes = processes


def has_gpu() -> bool:
    """Whether this build of vLLM runs on a GPU. Asking torch instead would initialise CUDA, which no fork survives."""
    return bool(current_platform.is_cuda_alike())


def build(arguments: dict[str, Any], gpu: bool, board: LoadBoard, events: EventStream) -> Live:
    """Start the engine's processes and load the model. Blocks for seconds; callable from any thread."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    publishing = KVEventsConfig(
        enable_kv_cache_events=True, endpoint=events.address, replay_endpoint=events.replay_address
    )
    config = AsyncEngineArgs(**arguments, kv_events_config=publishing).create_engine_config(UsageContext.ENGINE_CONTEXT)
    if not gpu:
        # A forked engine has torch and vLLM imported already: 7 s to start instead of 36. vLLM's CPU platform has just
        # set "spawn", hence only now. On a GPU vLLM's own choice stands: fork, or spawn once CUDA is initialised.
        settings.set_library_environment({"VLLM_WORKER_MULTIPROC_METHOD": "fork"}, override=True)
    loggers = [lambda _config, _index: BoardWriter(board)]
    llm = AsyncLLM.from_vllm_config(config, stat_loggers=loggers, disable_log_stats=True)
    started = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    return Live(llm, started)


def cache_shape(live: Live) -> CacheShape:
    """As the engine has found it to be: by its memory, unless that was given."""
    config = live.llm.vllm_config.cache_config
    return CacheShape(config.num_gpu_blocks or 0, config.block_size)


def embeds_width(live: Live) -> int:
    """How many numbers stand for one token where it enters the model."""
    return int(live.llm.model_config.get_inputs_embeds_size())


def mixed_prompt(
    live: Live, job: GenerateJob, rows: Sequence[Rows], salt: str
) -> tuple[Any, list[tuple[bytes, tuple[Item, ...]]]]:
    """A prompt of tokens and rows, and what lies in each of its blocks, by digest. Blocks; use a thread.

    Raises:
        ValueError: a row is not finite.
    """
    dtype = live.llm.model_config.dtype
    prompt, full = vllm_prompt.mixed(job, rows, embeds_width(live), dtype, salt)
    return prompt, list(vllm_prompt.blocks(job, rows, full, cache_shape(live).block_tokens))


def shut_down(live: Live) -> None:
    """Stop the engine and see its processes gone. Blocks; callable from any thread, also for a dead engine."""
    live.llm.shutdown()
    _, alive = psutil.wait_procs(live.processes, timeout=_LAST_WAIT_S)
    for process in alive:
        log.warning("engine process %d did not stop; killing it", process.pid)
        process.kill()
    psutil.wait_procs(alive, timeout=_LAST_WAIT_S)


def release_sockets(live: Live) -> None:
    """After `shut_down`, on the event loop: vLLM closes its sockets but not their context, which has threads."""
    resources = live.llm.engine_core.resources
    if all(socket is None or socket.closed for socket in (resources.output_socket, resources.input_socket)):
        resources.ctx.term()  # with an open socket it would wait for ever


def sampling_params(arguments: dict[str, Any], constraint: dict[str, Any] | None) -> SamplingParams:
    """vLLM's parameters.

    Raises:
        Unrunnable: a value is out of range.
    """
    structured = StructuredOutputsParams(**constraint) if constraint else None
    try:
        return SamplingParams(**arguments, structured_outputs=structured, output_kind=RequestOutputKind.DELTA)
    except VLLMValidationError as error:
        raise refusal(error) from error


def verify_grammar(live: Live, params: SamplingParams) -> None:
    """Convert the grammar as vLLM does before a request reaches the engine. May take long; use a thread.

    Raises:
        Unrunnable: a schema that is wrong or that the grammar engine cannot do.
    """
    config = live.llm.vllm_config
    try:
        params.verify(live.llm.model_config, None, config.structured_outputs_config, live.llm.get_tokenizer())
    except Exception as error:  # the client wrote the schema; whatever it upsets in there, the schema is at fault
        what = _SOURCE_POSITION.sub("", str(error)).strip()
        raise Unrunnable(f"the response format cannot be followed: {what}", "response_format") from error


def refusal(error: VLLMValidationError) -> Unrunnable:
    """vLLM's refusal as ours; without the tail it adds to the message for the parameter, which we keep apart."""
    return Unrunnable(str(error.args[0]), error.parameter)
