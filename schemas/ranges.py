"""What a number or a name on a topic may be. The decoder refuses everything else, NaN and infinities included.

A range may become wider, never narrower: what an older version has sent must stay readable. Ranges keep processes safe
(nothing overflows, nothing allocates for ever); what a model can do is for engines to say, to whoever asked.
"""

from typing import Annotated

from msgspec import Meta

# Names end up in Redis keys and log lines: any text without control characters, line breaks among them.
_PLAIN = r"[^\x00-\x1f\x7f\u2028\u2029]"
Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=rf"^{_PLAIN}+$(?!\n)")]
OptionalName = Annotated[str, Meta(max_length=256, pattern=rf"^{_PLAIN}*$(?!\n)")]
# An answer's part has its request's id and some numbers; a reservation's ticket has a hop count.
PartName = Annotated[str, Meta(min_length=1, max_length=320, pattern=rf"^{_PLAIN}+$(?!\n)")]
OptionalPartName = Annotated[str, Meta(max_length=320, pattern=rf"^{_PLAIN}*$(?!\n)")]
# Made by us: printable ASCII without spaces.
ObjectKey = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[!-~]+$(?!\n)")]
Digest = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-~]+$(?!\n)")]  # SHA-256 in hex
Text = Annotated[str, Meta(max_length=1 << 20)]
Label = Annotated[str, Meta(max_length=4_096)]  # shown to people: where a client put an item, why something was chosen

UnixSeconds = Annotated[float, Meta(ge=0, le=32_503_680_000)]  # the year 3000
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OptionalTokenId = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Logprobs = Annotated[int, Meta(ge=0, le=1_024)]  # a list as long as this, with every token
Bytes = Annotated[int, Meta(ge=0, le=2**53)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Weight = Annotated[float, Meta(ge=-1e6, le=1e6)]  # penalties, biases, costs: finite
