"""What our own AsyncAPI document (topics/asyncapi.py) looks like to whoever reads it. Only what the page shows."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, field


class Schema(msgspec.Struct, rename="camel"):
    """JSON Schema, as msgspec writes it."""

    ref: str = field(name="$ref", default="")
    type: str = ""
    description: str = ""
    enum: list[Any] = []
    any_of: list["Schema"] = []
    one_of: list["Schema"] = []
    all_of: list["Schema"] = []
    items: "Schema | bool" = False
    prefix_items: list["Schema"] = []
    additional_properties: "Schema | bool" = False
    properties: dict[str, "Schema"] = {}
    required: list[str] = []
    default: msgspec.Raw | UnsetType = UNSET
    minimum: float | None = None
    maximum: float | None = None
    content_encoding: str = ""

    @property
    def name(self) -> str:
        """Of the type that it refers to."""
        return self.ref.rpartition("/")[2]


class Example(msgspec.Struct):
    name: str
    payload: msgspec.Raw


class KafkaKey(msgspec.Struct):
    key: Schema


class MessageBindings(msgspec.Struct):
    kafka: KafkaKey


class Message(msgspec.Struct):
    title: str
    payload: Schema
    examples: list[Example]
    headers: Schema | None = None
    bindings: MessageBindings | None = None

    @property
    def kinds(self) -> list[str]:
        """The types that it may be."""
        return [one.name for one in self.payload.one_of or [self.payload]]


class TopicConfiguration(msgspec.Struct):
    retention_ms: int = field(name="retention.ms")


class KafkaChannel(msgspec.Struct, rename="camel"):
    partitions: int
    topic_configuration: TopicConfiguration


class ChannelBindings(msgspec.Struct):
    kafka: KafkaChannel


class Channel(msgspec.Struct):
    address: str
    messages: dict[str, Schema]
    bindings: ChannelBindings
    written_by: str = field(name="x-written-by")
    read_by: str = field(name="x-read-by")
    most_bytes: int = field(name="x-max-record-bytes")
    group: str = field(name="x-consumer-group", default="")


class Server(msgspec.Struct):
    host: str


class Info(msgspec.Struct):
    title: str
    description: str


class Components(msgspec.Struct):
    messages: dict[str, Message]
    schemas: dict[str, Schema]


class Document(msgspec.Struct):
    info: Info
    servers: dict[str, Server]
    channels: dict[str, Channel]
    components: Components

    def messages_of(self, channel: Channel) -> list[Message]:
        return [self.components.messages[one.name] for one in channel.messages.values()]
