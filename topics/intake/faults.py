"""What is wrong with a media item, as told by code that does not know where in the request it stands."""

from schemas.errors import Code, TriptychError


class MediaFault(Exception):
    """`why` completes a sentence that names the item: "its host has no public address". It never quotes a URL, an
    address or an error of ours: a client could learn from them what only our network should know."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why

    def at(self, param: str) -> TriptychError:
        """The same, for the client."""
        return TriptychError(self.code, f"Cannot take the media in '{param}': {self.why}.", param=param)


def too_large(most_bytes: int) -> MediaFault:
    return MediaFault("media_too_large", f"it has more than {most_bytes} bytes")
