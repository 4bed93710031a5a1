"""From vLLM's outputs to our steps: one translation, per request."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.events import Alternative, FinishReason, TokenLogprob
from schemas.jobs import GenerateJob
from workers.engine import Delta, End, Step, Unrunnable
from workers.engines.token_bytes import TokenBytes, text_of

_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
# JSON has no minus infinity; a token that a grammar forbids gets OpenAI's word for it.
_IMPOSSIBLE = -9999.0


class EngineError(Exception):
    """vLLM ended one request in a way it should not."""


class Translator:
    """Counts what one request produced while translating it. vLLM merges outputs when we are slow; so we may see
    several tokens, and several choices, at a time."""

    def __init__(self, job: GenerateJob, token_bytes: TokenBytes) -> None:
        self._job = job
        self._token_bytes = token_bytes
        self._completion_tokens = 0
        self._cached_tokens: int | None = None

    def steps(self, output: Any) -> Iterator[Step]:
        """The steps of one vLLM RequestOutput (delta kind).

        Raises:
            Unrunnable: the engine could not follow the response format. EngineError: the request ended abnormally.
        """
        self._note_cached(output.num_cached_tokens)
        for choice in output.outputs:
            self._completion_tokens += len(choice.token_ids)
            if choice.token_ids or choice.text or choice.finish_reason:
                yield self._delta(choice)
        if output.finished:
            yield End(len(self._job.prompt_ids), self._completion_tokens, self._cached_tokens or 0)

    def _note_cached(self, cached: int | None) -> None:
        # With n > 1 the later choices find what the first one has just computed: the least is what was there before.
        if cached is not None and cached >= 0:
            self._cached_tokens = cached if self._cached_tokens is None else min(self._cached_tokens, cached)

    def _delta(self, choice: Any) -> Delta:
        logprobs = None
        if self._job.sampling.logprobs is not None and choice.logprobs is not None:
            # The token that ended the answer is no part of its text, so neither of its log probabilities.
            shown = len(choice.token_ids) - (1 if _ended_by_token(choice) else 0)
            logprobs = self._logprobs(choice.token_ids[:shown], choice.logprobs[:shown])
        return Delta(
            index=choice.index,
            text=choice.text,
            token_ids=list(choice.token_ids),
            finish_reason=self._finish_reason(choice.finish_reason),
            logprobs=logprobs,
        )

    def _finish_reason(self, reason: str | None) -> FinishReason | None:
        if reason is None or reason in _FINISH_REASONS:
            return _FINISH_REASONS[reason] if reason else None
        if reason == "error" and self._job.sampling.constraint is not None:
            raise Unrunnable("the engine cannot follow this response format", "response_format")
        raise EngineError(f"vLLM ended the request with {reason!r}")

    def _logprobs(self, token_ids: Sequence[int], positions: Sequence[Mapping[int, Any]]) -> list[TokenLogprob]:
        wanted = self._job.sampling.logprobs or 0
        found: list[TokenLogprob] = []
        for token_id, candidates in zip(token_ids, positions, strict=True):
            ranked = sorted(candidates.items(), key=lambda item: item[1].rank)[:wanted]
            top = [self._alternative(other, one.logprob) for other, one in ranked]
            chosen = self._alternative(token_id, candidates[token_id].logprob)
            found.append(TokenLogprob(chosen.token, chosen.raw, chosen.logprob, top))
        return found

    def _alternative(self, token_id: int, logprob: float) -> Alternative:
        raw = self._token_bytes.of(token_id)
        return Alternative(text_of(raw), raw, max(logprob, _IMPOSSIBLE))


def _ended_by_token(choice: Any) -> bool:
    """True when an end-of-sequence or stop token is the last of this choice (a stop string ends it with a str)."""
    return choice.finish_reason == "stop" and not isinstance(choice.stop_reason, str)
