"""The base model's own answers to plain questions: trained along, so that it goes on answering them as it did."""

from collections.abc import Callable
from typing import Any

import torch

from workers.engines.omni_tiny import wording
from workers.engines.omni_tiny.lessons import Turn
from workers.engines.omni_tiny.prompts import CLOSE, question

ANSWER_TOKENS, BATCH = 40, 20


def ask(model: Any, tokenizer: Any, say: Callable[[str], None]) -> dict[str, str]:
    """Greedy answers by question. One that is longer than ANSWER_TOKENS is left out rather than taught as cut short."""
    found: dict[str, str] = {}
    for at in range(0, len(wording.CHAT), BATCH):
        asked = wording.CHAT[at : at + BATCH]
        found |= {text: answer for text, answer in zip(asked, _answers(model, tokenizer, asked), strict=True) if answer}
    say(f"llm: {len(found)} plain answers of the base model")
    return found


def _answers(model: Any, tokenizer: Any, asked: tuple[str, ...]) -> list[str]:
    """One each, in order; empty where it did not come to its end."""
    prompts = [question(None, [Turn(text, "")], tokenizer) for text in asked]
    longest, pad = max(map(len, prompts)), tokenizer.token_to_id(CLOSE)
    ids = torch.tensor([[pad] * (longest - len(one)) + one for one in prompts])
    seen = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
    written = model.generate(  # without gradients by itself
        input_ids=ids, attention_mask=seen, do_sample=False, max_new_tokens=ANSWER_TOKENS, pad_token_id=pad
    )[:, longest:].tolist()
    return [tokenizer.decode(one[: one.index(pad)]).strip() if pad in one else "" for one in written]
