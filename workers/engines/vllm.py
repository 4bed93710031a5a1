"""vLLM in this process, behind the Engine protocol: the CPU build and the CUDA build alike."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from infra import model_files, settings
from infra.clock import Clock, SystemClock
from schemas.jobs import GenerateJob, Head, JsonObject, Sampling
from schemas.manifest import Manifest
from topics.steering import namespaces
from workers.engine import CacheBatch, CacheShape, Cleared, EmbedsShape, EngineDied, Load, Rows, Step, Unrunnable
from workers.engines import vllm_sampling, vllm_settings
from workers.engines.leash import Leash
from workers.engines.token_bytes import TokenBytes
from workers.engines.vllm_items import ItemMemory
from workers.engines.vllm_output import Translator

if TYPE_CHECKING:
    from workers.engines.vllm_backend import Live
    from workers.engines.vllm_events import EventStream
    from workers.engines.vllm_load import LoadBoard

log = logging.getLogger(__name__)

_WARM_UP_S = 120.0
_REAP_S = 5.0


class VllmEngine:
    """Many requests at once through one AsyncLLM, which is replaced in place when its processes die.

    `slots` is final after `start`, when it is known whether there is a GPU. Event loop of `start` and of all else are
    the same one; what blocks runs in threads, so leases are renewed meanwhile.
    """

    name = "vllm"

    def __init__(self, manifest: Manifest, path: Path, clock: Clock | None = None) -> None:
        self.slots = manifest.engine.cpu_max_running
        self.cache = CacheShape(0, manifest.engine.cpu_block_tokens)
        self._manifest = manifest
        self._path = path
        self._clock = clock or SystemClock()
        self._files = model_files.read(path)
        tokenizer = Tokenizer.from_file(str(self._files.tokenizer_json))
        self._token_bytes = TokenBytes(tokenizer)
        self._placeholders = vllm_settings.placeholders(manifest, tokenizer)
        self._namespace = namespaces.plain(manifest, self._files.chat_template)
        self._items = ItemMemory()
        self.embeds: EmbedsShape | None = None
        self._gpu = False
        self._backend: ModuleType | None = None
        self._board: LoadBoard | None = None
        self._live: Live | None = None
        self._leash = Leash()
        self._events: EventStream | None = None
        self._streams: asyncio.Queue[EventStream] = asyncio.Queue()  # of all lives, to be read in order

    async def start(self, report: Callable[[str], None]) -> None:
        report("importing vLLM")
        self._backend = await asyncio.to_thread(_import_backend)
        self._gpu = self._backend.has_gpu()
        if self._gpu:
            self.slots = self._manifest.engine.max_running
        await self._bring_up(report)

    async def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        backend, live = self._alive()
        vllm_sampling.check(job, self._manifest.limits, self._files.vocab_size)
        vllm_sampling.check_outputs(job.outputs, self._token_bytes.special)
        params = await self._params(job)
        translator = Translator(job, self._token_bytes)
        if job.embeds:
            prompt = await self._mixed(job, rows)
        else:
            prompt = backend.tokens_input(job.prompt_ids, cache_salt=namespaces.salt_of(self._namespace, job))
        rows = ()  # the answer takes long, and does not need them
        outputs = live.llm.generate(prompt, params, job.head.request_id, priority=job.head.priority)
        try:
            async with aclosing(outputs):  # closing it aborts the request inside the engine
                async for output in outputs:
                    for step in translator.steps(output):
                        yield step
        except backend.EngineDeadError as error:
            raise EngineDied("vLLM's engine process died") from error
        except backend.VLLMValidationError as error:
            raise backend.refusal(error) from error
        except backend.EngineGenerateError as error:
            if live.llm.errored:
                raise EngineDied("vLLM stopped handing out results") from error
            raise

    def load(self) -> Load:
        if self._live is None or self._board is None or self._live.llm.errored:
            return Load()
        held_blocks = self._events.held_blocks if self._events else None
        return self._board.read(self._live.llm.get_num_unfinished_requests(), self.cache.total_blocks, held_blocks)

    async def cache_events(self) -> AsyncGenerator[CacheBatch]:
        while True:
            stream = await self._streams.get()
            async with aclosing(stream.batches()) as batches:
                async for batch in batches:
                    yield batch
            yield CacheBatch([Cleared()])

    async def restart(self, report: Callable[[str], None]) -> None:
        report("stopping the old engine")
        await self.close()
        await self._bring_up(report)

    async def close(self) -> None:
        if self._events is not None:
            self._events.close()
        live, self._live = self._live, None
        if self._backend is None or live is None:
            return
        await asyncio.to_thread(self._backend.shut_down, live)
        # The shutdown has only asked vLLM's own task to end; it does so here, on its loop.
        if live.llm.output_handler is not None:
            await asyncio.wait([live.llm.output_handler], timeout=_REAP_S)
        self._backend.release_sockets(live)

    def _alive(self) -> tuple[ModuleType, "Live"]:
        if self._backend is None or self._live is None or self._live.llm.errored:
            raise EngineDied("vLLM is not running")
        return self._backend, self._live

    async def _bring_up(self, report: Callable[[str], None]) -> None:
        from workers.engines.vllm_events import EventStream
        from workers.engines.vllm_load import LoadBoard

        backend = self._backend
        assert backend is not None, "restart before start"
        arguments = vllm_settings.engine_args(self._manifest, self._path, self._gpu)
        self._board = LoadBoard(self._clock, vllm_settings.prior_speed(self._gpu))
        self._events = EventStream(self._items.recall)
        report(f"loading {self._manifest.id} on {'the GPU' if self._gpu else 'the CPU'}")
        with self._leash.held():
            self._live = await asyncio.to_thread(backend.build, arguments, self._gpu, self._board, self._events)
        self.cache = backend.cache_shape(self._live)
        if self._placeholders:
            self.embeds = EmbedsShape(backend.embeds_width(self._live), self._placeholders)
        self._streams.put_nowait(self._events)
        report("warming up")
        async with asyncio.timeout(_WARM_UP_S):
            await self._warm_up()

    async def _warm_up(self) -> None:
        """One free and one constrained request: the second one builds the grammar engine's view of the vocabulary."""
        for constraint in (None, JsonObject()):
            head = Head("warm-up", self._manifest.id, deadline_at=0.0, created_at=0.0, reply_to="")
            job = GenerateJob(head, [1, 2, 3], Sampling(max_tokens=2, temperature=0.0, constraint=constraint))
            async with aclosing(self.run(job)) as steps:
                async for _ in steps:
                    continue

    async def _mixed(self, job: GenerateJob, rows: Sequence[Rows]) -> Any:
        """The prompt with its rows; what they are is noted before the engine can tell of their blocks."""
        backend, live = self._alive()
        if self.embeds is None or any(one.width != self.embeds.width for one in rows):
            # vLLM's engine would die of them.
            raise Unrunnable("the model takes no embeddings of this width", "messages")
        if len(rows) != len(job.embeds):
            raise ValueError(f"{len(rows)} of {len(job.embeds)} items have rows")
        salt = namespaces.cache_salt(namespaces.of(self._namespace, job))
        prompt, blocks = await asyncio.to_thread(backend.mixed_prompt, live, job, rows, salt)
        for digest, items in blocks:
            self._items.remember(digest, items)
        return prompt

    async def _params(self, job: GenerateJob) -> Any:
        backend, live = self._alive()
        arguments = vllm_sampling.sampling_params(job.sampling, self._files.vocab_size)
        constraint = vllm_sampling.constraint(job.sampling)
        params = backend.sampling_params(arguments, constraint)
        if constraint is not None:
            await asyncio.to_thread(backend.verify_grammar, live, params)
        return params


def _import_backend() -> ModuleType:
    """Import vLLM quietly, with its environment set before torch reads it."""
    debug = logging.getLogger().isEnabledFor(logging.DEBUG)
    settings.set_library_environment(
        {
            "OMP_NUM_THREADS": str(vllm_settings.cpu_threads(len(os.sched_getaffinity(0)))),
            "VLLM_LOGGING_LEVEL": "DEBUG" if debug else "WARNING",
            "VLLM_NO_USAGE_STATS": "1",  # nothing leaves the machine
            "HF_HUB_OFFLINE": "1",  # the model is a folder; looking further would only wait for time-outs
            "TOKENIZERS_PARALLELISM": "false",  # its threads do not survive the fork
        }
    )
    try:
        from workers.engines import vllm_backend
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(
            f"vLLM cannot be imported: {error}. Beside a CPU build of torch, uninstall torchvision, torchaudio and "
            "torchcodec: the ones a package index has are built for CUDA, and text models need none of them."
        ) from error
    return vllm_backend
