"""The models served here: what a request needs to know of one, and the list that clients see."""

from collections.abc import Iterable, Mapping

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from gateway.dispatch import Pool
from gateway.render import Renderer
from schemas.errors import TriptychError
from schemas.manifest import Manifest
from schemas.media import DecoderKind, EncoderKind
from schemas.openai_reply import Model, ModelList
from topics import fingerprints, join
from topics.join import Language
from topics.plan import Codes
from topics.tokens import ChatTokenizer


class Served:
    """One model: its manifest, how its prompts are made, and the pool that runs it, maybe for other models as well.

    `language`: how media become a part of prompts. `codes`: the decoders that take tokens of the answer, and which.
    """

    def __init__(
        self,
        manifest: Manifest,
        context_tokens: int,
        renderer: Renderer,
        pool: Pool,
        language: Language,
        codes: Mapping[DecoderKind, Codes],
    ) -> None:
        self.manifest = manifest
        self.context_tokens = context_tokens
        self.renderer = renderer
        self.pool = pool
        self.language = language
        self.codes = codes
        self.fingerprints: Mapping[EncoderKind, str] = {
            kind: fingerprints.fingerprint(manifest, kind) for kind in manifest.encoders
        }

    @property
    def card(self) -> Model:
        return Model(
            id=self.manifest.id,
            created=self.manifest.created,
            owned_by=self.manifest.owned_by,
            max_model_len=self.context_tokens,
            capabilities=list(self.manifest.capabilities),
            handoff=self.manifest.handoff or None,
            voices=list(self.manifest.decoders["audio"].voices) if "audio" in self.manifest.decoders else [],
        )


class ServedModels:
    def __init__(self, served: Iterable[Served]) -> None:
        self._served = {one.manifest.id: one for one in served}

    def get(self, model: str) -> Served:
        """Raises TriptychError: model_not_found."""
        try:
            return self._served[model]
        except KeyError:
            raise TriptychError(
                "model_not_found", f"The model {model[:100]!r} does not exist.", param="model"
            ) from None

    def manifests(self) -> list[Manifest]:
        return [one.manifest for one in self._served.values()]

    def listing(self) -> ModelList:
        return ModelList(data=[one.card for one in self._served.values()])

    def pools(self) -> list[Pool]:
        """Each once, though models may share them."""
        return list({one.pool.model: one.pool for one in self._served.values()}.values())


def language_of(manifest: Manifest, tokenizer: ChatTokenizer) -> Language:
    """Raises UnusableTokenizer: a placeholder that the manifest names is no token of the model's."""
    placeholders = {
        f"{manifest.id}/{kind}": tokenizer.token_id(one.placeholder)
        for kind, one in manifest.encoders.items()
        if one.placeholder
    }
    return Language(join.plain(tokenizer), placeholders)


def codes_of(manifest: Manifest, tokenizer: ChatTokenizer) -> dict[DecoderKind, Codes]:
    """Raises UnusableTokenizer: a token that the manifest names is none of the model's."""
    return {
        kind: Codes(*(tokenizer.token_id(text) for text in (one.begin, one.end, one.first, one.last)))
        for kind, one in manifest.decoders.items()
        if one.begin
    }


def routes(models: ServedModels) -> list[HTTPRouteHandler]:
    @get("/v1/models", sync_to_thread=False)
    def listing() -> ModelList:
        return models.listing()

    @get("/v1/models/{model:str}", sync_to_thread=False)
    def one(model: FromPath[str]) -> Model:
        return models.get(model).card

    return [listing, one]
