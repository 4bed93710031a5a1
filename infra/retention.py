"""Every kind of object in the store: who writes it, who reads it, and how long it is kept after it was last written.

| key                          | written by               | read by                         | kept for                |
|------------------------------|--------------------------|---------------------------------|-------------------------|
| media/<sha256>               | gateways (intake)        | encoders, gateways              | media_ttl_s             |
| artifacts/<encoder>/<sha256> | encoders                 | gateways, encoders, LLM workers | media_ttl_s             |
| outputs/<random>/<n>         | decoders                 | gateways, clients by URL        | output_ttl_s            |
| transcripts/<answer>         | gateways                 | gateways, for an hour           | TRANSCRIPT_S            |
| uploads/<file>               | clients by URL           | gateways, when first used       | file_ttl_s, DAY_S       |
| staging/<random>             | whoever streams to media | the same                        | upload_timeout_s, DAY_S |
| payloads/<sha256>            | senders of large jobs    | their readers                   | PAYLOAD_S               |
| letters/<sha256>             | senders of dead letters  | operators                       | LETTER_S                |

Unfinished uploads in parts are kept as long as objects of the same prefix. Anything else in the bucket is not ours.

Media and artifacts are found again by their content, and live for as long as they are in use: whoever finds one past
half its time writes it anew (`Blobs.hold`, `Blobs.put_stream`), so what has been found stays for at least the other
half, longer than any request or file id. Only what nobody has asked for during all that half can be swept away in the
very moment in which it is found again. Its request fails then (file_not_found, artifact_missing); sent again, it
finds nothing, and everything is stored and made anew.
"""

import msgspec

from infra.settings import Settings

HOUR_S, DAY_S = 3_600, 86_400
TRANSCRIPT_S = 2 * HOUR_S
PAYLOAD_S = 2 * DAY_S  # records that name them stay in their topic for a day
LETTER_S = 31 * DAY_S  # the same for 30

ARTIFACTS = "artifacts/"


class Kind(msgspec.Struct, frozen=True):
    """All objects whose keys begin with `prefix`; `ttl_s` counts from their last writing."""

    prefix: str
    ttl_s: int


def kinds(settings: Settings) -> list[Kind]:
    return [
        Kind("media/", settings.media_ttl_s),
        Kind(ARTIFACTS, settings.media_ttl_s),
        Kind("outputs/", settings.output_ttl_s),
        Kind("transcripts/", TRANSCRIPT_S),
        Kind("uploads/", settings.file_ttl_s + DAY_S),
        Kind("staging/", settings.upload_timeout_s + DAY_S),
        Kind("payloads/", PAYLOAD_S),
        Kind("letters/", LETTER_S),
    ]
