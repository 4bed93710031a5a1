"""The models served here: what a request needs to know of one, and the list that clients see."""

from collections.abc import Iterable

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from gateway.dispatch import Pool
from gateway.render import Renderer
from schemas.errors import TriptychError
from schemas.manifest import Manifest
from schemas.openai_reply import Model, ModelList


class Served:
    """One model: its manifest, how its prompts are made, and the pool that runs it."""

    def __init__(self, manifest: Manifest, context_tokens: int, renderer: Renderer, pool: Pool) -> None:
        self.manifest = manifest
        self.context_tokens = context_tokens
        self.renderer = renderer
        self.pool = pool

    @property
    def card(self) -> Model:
        return Model(
            id=self.manifest.id,
            created=self.manifest.created,
            owned_by=self.manifest.owned_by,
            max_model_len=self.context_tokens,
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

    def listing(self) -> ModelList:
        return ModelList(data=[one.card for one in self._served.values()])

    def pools(self) -> list[Pool]:
        return [one.pool for one in self._served.values()]


def routes(models: ServedModels) -> list[HTTPRouteHandler]:
    @get("/v1/models", sync_to_thread=False)
    def listing() -> ModelList:
        return models.listing()

    @get("/v1/models/{model:str}", sync_to_thread=False)
    def one(model: FromPath[str]) -> Model:
        return models.get(model).card

    return [listing, one]
