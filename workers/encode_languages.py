"""What encoders must know of the LLMs that their requests go on to."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from infra import model_files, model_paths
from schemas.manifest import Manifest
from topics.join import Language, plain
from topics.tokens import ChatTokenizer


def languages(served: Iterable[Manifest], model_dir: Path) -> dict[str, Language]:
    """By the LLM's id, of these models.

    Raises:
        ModelMissing: an LLM's tokenizer is not there.
        UnusableTokenizer: it cannot be used, or lacks an encoder's placeholder.
    """
    models: dict[str, list[Manifest]] = {}
    for one in served:
        models.setdefault(one.pool, []).append(one)
    return {llm: _language(sharing, model_dir) for llm, sharing in models.items()}


def _language(models: list[Manifest], model_dir: Path) -> Language:
    files = model_files.read(model_paths.of_llm(models[0], model_dir))
    tokenizer = ChatTokenizer(files.tokenizer_json.read_bytes())
    return Language(plain(tokenizer), {name: tokenizer.token_id(text) for name, text in _placeholders(models).items()})


def _placeholders(models: list[Manifest]) -> Mapping[str, str]:
    return {
        f"{model.id}/{kind}": encoder.placeholder
        for model in models
        for kind, encoder in model.encoders.items()
        if encoder.placeholder
    }
