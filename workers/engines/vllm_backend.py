"""The calls into vLLM. Importing this file imports torch and vLLM (about 10 s): only `vllm.py` does, in a thread."""

import logging
import os
import signal
from typing import Any

import psutil
import torch
from vllm import AsyncEngineArgs, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from infra import settings
from workers.engines.vllm_load import BoardWriter, LoadBoard

__all__ = ["EngineDeadError", "EngineGenerateError", "VLLMValidationError", "tokens_input"]

log = logging.getLogger(__name__)

_LAST_WAIT_S = 5.0


class Live:
    """A running AsyncLLM and the processes it started."""

    def __init__(self, llm: AsyncLLM, processes: list[psutil.Process]) -> None:
        self.llm = llm
        self.processes = processes


def has_cuda() -> bool:
    return bool(torch.cuda.is_available())


def build(arguments: dict[str, Any], cuda: bool, board: LoadBoard) -> Live:
    """Start the engine's processes and load the model. Blocks for seconds; callable from any thread."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    config = AsyncEngineArgs(**arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    # A forked engine has torch and vLLM imported already: 7 s to start instead of 36. vLLM's CPU platform has just set
    # "spawn", hence only now. CUDA does not survive a fork once it is initialised.
    method = "spawn" if cuda else "fork"
    settings.set_library_environment({"VLLM_WORKER_MULTIPROC_METHOD": method}, override=True)
    llm = AsyncLLM.from_vllm_config(
        config, stat_loggers=[lambda _config, _index: BoardWriter(board)], disable_log_stats=True
    )
    started = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    return Live(llm, started)


def shut_down(live: Live) -> None:
    """Stop the engine and see its processes gone. Blocks; callable from any thread, also for a dead engine."""
    live.llm.shutdown()
    _, alive = psutil.wait_procs(live.processes, timeout=_LAST_WAIT_S)
    for process in alive:
        log.warning("engine process %d did not stop; killing it", process.pid)
        process.kill()
    psutil.wait_procs(alive, timeout=_LAST_WAIT_S)


def sampling_params(arguments: dict[str, Any], constraint: dict[str, Any] | None) -> SamplingParams:
    """Raises VLLMValidationError: a value is out of range."""
    structured = StructuredOutputsParams(**constraint) if constraint else None
    return SamplingParams(**arguments, structured_outputs=structured, output_kind=RequestOutputKind.DELTA)


def verify(live: Live, params: SamplingParams) -> None:
    """Compile the grammar as far as vLLM does before a request reaches the engine. May take long; use a thread.

    Raises:
        ValueError: a schema that is wrong or that the grammar engine cannot do.
    """
    config = live.llm.vllm_config
    params.verify(live.llm.model_config, None, config.structured_outputs_config, live.llm.get_tokenizer())


def separate_forked_children() -> None:
    """From now on a forked child leaves our signals alone; call once, before the first `build`.

    A fork inherits the pipe through which the event loop hears of signals, so a SIGTERM to the engine would tell us to
    stop; and a Ctrl-C reaches the whole process group, so it would stop the engine under the streams we are draining.
    """
    os.register_at_fork(after_in_child=_separate)


def _separate() -> None:
    signal.set_wakeup_fd(-1)
    os.setpgid(0, 0)
