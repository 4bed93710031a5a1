"""What a gateway needs to know of a model, read from its folder without torch or transformers."""

from pathlib import Path
from typing import Any

import msgspec


class ModelMissing(Exception):
    """The folder does not hold a usable model; the message says what is missing."""


class SpecialTokens(msgspec.Struct, frozen=True):
    """The texts chat templates refer to; empty where the model has none."""

    bos: str = ""
    eos: str = ""
    unk: str = ""
    pad: str = ""


class ModelFiles(msgspec.Struct, frozen=True):
    """A plain Hugging Face model folder.

    `tokenizer_json` is the path of the fast tokenizer; `eos_ids` are the token ids that end an answer; `vocab_size` is
    the number of token ids the model knows; `max_context_tokens` what it was trained to read, 0 if it does not say.
    """

    path: Path
    tokenizer_json: Path
    chat_template: str
    special: SpecialTokens
    eos_ids: frozenset[int]
    vocab_size: int
    max_context_tokens: int


class _TextConfig(msgspec.Struct, frozen=True):
    vocab_size: int = 0
    max_position_embeddings: int = 0


class _Config(msgspec.Struct, frozen=True):
    """config.json; multi-modal models keep their language model under `text_config`."""

    vocab_size: int = 0
    max_position_embeddings: int = 0
    eos_token_id: int | list[int] | None = None
    text_config: _TextConfig | None = None


class _GenerationConfig(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int] | None = None


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class _AddedToken(msgspec.Struct, frozen=True):
    content: str


class _TokenizerConfig(msgspec.Struct, frozen=True):
    bos_token: str | _AddedToken | None = None
    eos_token: str | _AddedToken | None = None
    unk_token: str | _AddedToken | None = None
    pad_token: str | _AddedToken | None = None
    chat_template: str | list[_NamedTemplate] | None = None


def read(path: Path) -> ModelFiles:
    """Read a model folder.

    Raises:
        ModelMissing: the folder, one of its files or something in them is not there.
    """
    config = _load(path / "config.json", _Config)
    tokenizer = _load(path / "tokenizer_config.json", _TokenizerConfig)
    tokenizer_json = path / "tokenizer.json"
    if not tokenizer_json.is_file():
        raise ModelMissing(f"{tokenizer_json} is missing; only models with a fast tokenizer can be served")
    text = config.text_config or _TextConfig(config.vocab_size, config.max_position_embeddings)
    if not text.vocab_size:
        raise ModelMissing(f"{path / 'config.json'} has no vocab_size")
    return ModelFiles(
        path=path,
        tokenizer_json=tokenizer_json,
        chat_template=_chat_template(path, tokenizer),
        special=SpecialTokens(
            bos=_text(tokenizer.bos_token),
            eos=_text(tokenizer.eos_token),
            unk=_text(tokenizer.unk_token),
            pad=_text(tokenizer.pad_token),
        ),
        eos_ids=_eos_ids(path, config),
        vocab_size=text.vocab_size,
        max_context_tokens=text.max_position_embeddings,
    )


def chat_template(path: Path) -> str:
    """Of a model folder; "" when the model has none.

    Raises:
        ModelMissing: as `read`.
    """
    return _chat_template(path, _load(path / "tokenizer_config.json", _TokenizerConfig))


def _load(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ModelMissing(f"{path} is missing; fetch the model with `triptych models pull`") from error
    except msgspec.MsgspecError as error:
        raise ModelMissing(f"{path}: {error}") from error


def _chat_template(path: Path, tokenizer: _TokenizerConfig) -> str:
    # Newer transformers write the template beside the config, and read it from there first.
    beside = path / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text("utf-8")
    match tokenizer.chat_template:
        case str(template):
            return template
        case list(named):
            by_name = {one.name: one.template for one in named}
            return by_name.get("default", "")
        case _:
            return ""


def _eos_ids(path: Path, config: _Config) -> frozenset[int]:
    generation = path / "generation_config.json"
    declared = _load(generation, _GenerationConfig).eos_token_id if generation.is_file() else None
    ids = config.eos_token_id if declared is None else declared
    return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])


def _text(token: str | _AddedToken | None) -> str:
    return token.content if isinstance(token, _AddedToken) else token or ""
