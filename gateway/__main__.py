"""`python -m gateway`: one gateway process, or `--gateways N` on one port, with settings from TRIPTYCH_*."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import msgspec
import uvloop

from gateway.group import Group
from gateway.member import Member, Place
from gateway.process import GatewayProcess
from gateway.server import PortTaken
from infra import log as logs
from infra import settings as config
from infra.faults import Refused, Unavailable
from infra.manifests import WrongManifest
from infra.model_files import ModelMissing
from topics.steering.policy import UnknownPolicy
from topics.tokens import UnusableTokenizer

EXIT_UNUSABLE, EXIT_TRY_AGAIN = 2, 1  # a supervisor starts the second one again


async def serve(settings: config.Settings, place: Place | None) -> None:
    await GatewayProcess(settings, Member(place, settings) if place else None).run()


async def keep(settings: config.Settings, gateways: int) -> int:
    return await Group(settings, gateways).run()


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m gateway", description="Settings come from TRIPTYCH_*; see README.md.")
    parser.add_argument(
        "--gateways",
        type=_count,
        metavar="N",
        help="so many processes on one port (default: TRIPTYCH_GATEWAYS)",
    )
    parser.add_argument("--member", type=_place, help=argparse.SUPPRESS)  # from the process that keeps the group
    return parser.parse_args(given)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= config.MOST_GATEWAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {config.MOST_GATEWAYS}")
    return int(text)


def _place(text: str) -> Place:
    return msgspec.json.decode(text, type=Place)


def main(given: Sequence[str] | None = None) -> int:
    asked = arguments(given)
    try:
        settings = config.load()
        logs.setup(settings.log_level)
        gateways = asked.gateways or settings.gateways
        if gateways > 1 and asked.member is None:
            return asyncio.run(keep(settings, gateways))
        # One prompt at a time gains nothing from the tokenizer's threads, and waking them costs more than the work.
        config.set_library_environment({"TOKENIZERS_PARALLELISM": "false"})
        uvloop.run(serve(settings, asked.member))
    except (
        config.WrongSetting,
        WrongManifest,
        ModelMissing,
        UnusableTokenizer,
        PortTaken,
        UnknownPolicy,
        Refused,
    ) as error:
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201  # the command's own words
        return EXIT_UNUSABLE
    except Unavailable as error:  # what is not there yet may come
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201  # the command's own words
        return EXIT_TRY_AGAIN
    return 0


if __name__ == "__main__":
    sys.exit(main())
