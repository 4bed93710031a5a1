"""A step-level model of one vLLM worker: time and memory, no tokens. Pure; its caller owns the clock.

Each step decodes one token of every running sequence and spends what is left of the token budget on prompts, in order
of arrival. Blocks are taken as sequences grow; when there are none the youngest sequence is preempted and later
computed again. Nothing here is per token: a sequence is touched when it enters, fills a block, leaves.
"""

from collections import deque

from workers.engines.sim_cache import CacheListener, SimCache
from workers.engines.sim_parts import NEVER, Sequence, SimParams, WorkerListener


class SimWorker:
    """One worker. Call `run_until` with growing times, `submit` at the time last run to."""

    def __init__(self, params: SimParams, cache: CacheListener, listener: WorkerListener, now: float = 0.0) -> None:
        self.params = params
        self.cache = SimCache(params.blocks, cache)
        self.now = now
        self.step = 0
        self.preemptions = 0
        self.prefilled_tokens = 0  # computed, not found in the cache
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}  # in order of admission
        self._listener = listener
        self._blocked = False  # the first in the queue does not fit, and nothing has changed since that was seen
        self._partial: deque[Sequence] = deque()  # admitted, prompt not yet computed
        self._sampled: list[Sequence] = []  # prompts completed by the step under way
        self._grows: dict[int, list[Sequence]] = {}
        self._finishes: dict[int, list[Sequence]] = {}
        self._step_ends: float | None = None

    @property
    def next_event_at(self) -> float | None:
        """When the step under way ends; None when idle."""
        return self._step_ends

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens still to compute, by what the cache holds now."""
        size = self.params.block_tokens
        queued = sum(
            max(0, each.prompt_tokens + each.generated - size * self.cache.match(each.keys, len(each.keys)))
            for each in self.waiting
        )
        return queued + sum(each.target - each.computed for each in self._partial)

    def submit(self, sequence: Sequence) -> None:
        """Queue it; an idle worker starts a step at once."""
        self.waiting.append(sequence)
        if self._step_ends is None:
            self._begin_step()

    def run_until(self, at: float) -> None:
        """Complete every step that ends by `at`."""
        while (ends := self._step_ends) is not None and ends <= at:
            self.now = ends
            self.step += 1
            self._end_step()
            self._begin_step()
        if at > self.now:
            self.now = at

    def generated(self, sequence: Sequence) -> int:
        """Tokens it has produced by now."""
        if sequence.finish_at == NEVER:
            return sequence.generated
        return sequence.generated + self.step - sequence.origin_step

    def abort(self, sequence: Sequence) -> None:
        """Drop it, wherever it is; what it computed stays cached. Harmless when it is not here."""
        if sequence in self.running:
            del self.running[sequence]
            self._drop(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
            self._blocked = False

    def kill(self) -> list[Sequence]:
        """Lose everything, as a killed process does; returns the sequences that had not finished."""
        lost = [*self.running, *self.waiting]
        for sequence in lost:
            sequence.generated = self.generated(sequence)
        self.running.clear()
        self.waiting.clear()
        self._blocked = False
        self._partial.clear()
        self._sampled.clear()
        self._grows.clear()
        self._finishes.clear()
        self._step_ends = None
        self.cache.clear()
        return lost

    def _begin_step(self) -> None:
        step, params = self.step + 1, self.params
        grows = self._grows.pop(step, None)
        room = not self._grow(grows, step) if grows else True
        prefilled = 0
        if self._partial or (self.waiting and room and not self._blocked):
            budget = params.step_budget_tokens - (len(self.running) - len(self._partial))
            prefilled = self._prefill(budget, admit=room)
        if not self.running:
            self._step_ends = None
            return
        seconds = params.step_base_s + params.step_per_sequence_s * len(self.running)
        if prefilled:
            seconds += prefilled / params.prefill_tokens_per_s
            self.prefilled_tokens += prefilled
        seconds /= params.speed
        self._listener.step(seconds, prefilled, len(self.running))
        self._step_ends = self.now + seconds

    def _end_step(self) -> None:
        step = self.step
        if self._sampled:
            sampled, self._sampled = self._sampled, []
            for sequence in sampled:
                self._start_decode(sequence)
        finishes = self._finishes.pop(step, None)
        if finishes:
            for sequence in finishes:
                if sequence.finish_at == step:
                    self._finish(sequence)

    def _start_decode(self, sequence: Sequence) -> None:
        step = self.step
        sequence.generated += 1
        sequence.origin_step = step
        sequence.origin_tokens = sequence.target
        sequence.finish_at = step + sequence.output_tokens - sequence.generated
        self._finishes.setdefault(sequence.finish_at, []).append(sequence)
        self._plan_growth(sequence)
        self._listener.first_token(sequence, self.now)

    def _plan_growth(self, sequence: Sequence) -> None:
        capacity = (len(sequence.shared) + sequence.private) * self.params.block_tokens
        at = sequence.origin_step + capacity - sequence.origin_tokens + 1
        if at <= sequence.finish_at:
            sequence.grow_at = at
            self._grows.setdefault(at, []).append(sequence)

    def _finish(self, sequence: Sequence) -> None:
        del self.running[sequence]
        tokens = sequence.origin_tokens + sequence.finish_at - sequence.origin_step
        self._publish(sequence, tokens)
        self._drop(sequence)
        sequence.generated = sequence.output_tokens
        self._listener.finished(sequence, self.now)

    def _publish(self, sequence: Sequence, tokens: int) -> None:
        full = min(tokens // self.params.block_tokens, len(sequence.keys))
        if full > sequence.published:
            sequence.shared += self.cache.publish(sequence.keys, sequence.published, full)
            sequence.private -= full - sequence.published
            sequence.published = full

    def _drop(self, sequence: Sequence) -> None:
        """Give its blocks back and forget its plans."""
        self._blocked = False
        self.cache.release(sequence.shared, sequence.private)
        sequence.shared, sequence.private, sequence.published = [], 0, 0
        sequence.grow_at = sequence.finish_at = NEVER
        if sequence.computed < sequence.target and sequence in self._partial:
            self._partial.remove(sequence)
        elif sequence in self._sampled:
            self._sampled.remove(sequence)

    def _grow(self, sequences: list[Sequence], step: int) -> bool:
        """Give each its next block, preempting the youngest while there is none. True when somebody was."""
        preempted = False
        for sequence in sequences:
            if sequence.grow_at != step:
                continue
            self._publish(sequence, sequence.origin_tokens + step - 1 - sequence.origin_step)
            while not self.cache.available and sequence.grow_at == step:
                self._preempt()
                preempted = True
            if sequence.grow_at == step:
                self.cache.take(1)
                sequence.private += 1
                self._plan_growth(sequence)
        return preempted

    def _preempt(self) -> None:
        youngest, _ = self.running.popitem()
        youngest.generated = self.generated(youngest)
        self._drop(youngest)
        self.waiting.appendleft(youngest)
        self.preemptions += 1

    def _prefill(self, budget: int, admit: bool) -> int:
        """Spend the budget on prompts, those begun first; returns the tokens computed."""
        left = budget
        while self._partial and left > 0:
            left -= self._compute(self._partial[0], left)
        while admit and left > 0 and self.waiting and len(self.running) < self.params.max_sequences:
            sequence = self.waiting[0]
            if self._blocked or not self._admit(sequence):
                self._blocked = True
                break
            self.waiting.popleft()
            self.running[sequence] = None
            self._partial.append(sequence)
            left -= self._compute(sequence, left)
        return budget - left

    def _admit(self, sequence: Sequence) -> bool:
        """Take the blocks of its whole prompt, cached or new; False when they do not fit."""
        size, cache = self.params.block_tokens, self.cache
        target = sequence.prompt_tokens + sequence.generated
        # The last token is always computed: sampling needs its hidden state.
        hit = cache.match(sequence.keys, (target - 1) // size)
        matched = sequence.keys[:hit]
        needed = -(-target // size) - hit
        if cache.available - cache.idle_among(matched) < needed:
            return False
        cache.acquire(matched)
        cache.take(needed)
        sequence.shared, sequence.private, sequence.published = list(matched), needed, hit
        sequence.target, sequence.computed = target, hit * size
        if not sequence.generated:
            sequence.cached_tokens = hit * size
        return True

    def _compute(self, sequence: Sequence, budget: int) -> int:
        """Compute some of its prompt; what is scheduled can be matched by the next one in the same step."""
        count = min(budget, sequence.target - sequence.computed)
        sequence.computed += count
        self._publish(sequence, sequence.computed)
        self._blocked = False  # its blocks may be what the first in the queue lacks
        if sequence.computed == sequence.target:
            self._partial.popleft()
            self._sampled.append(sequence)
        return count
