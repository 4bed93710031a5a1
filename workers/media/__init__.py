"""Bytes to what a model sees or hears, and back. Nothing here knows of a queue, a store or an engine."""

from workers.media.read import decode
from workers.media.sandbox import Decoders

__all__ = ["Decoders", "decode"]
