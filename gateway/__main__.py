"""`python -m gateway`: one gateway process, with settings from TRIPTYCH_*."""

import sys

import uvloop

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


async def serve(settings: config.Settings) -> None:
    await GatewayProcess(settings).run()


def main() -> int:
    try:
        settings = config.load()
        logs.setup(settings.log_level)
        # One prompt at a time gains nothing from the tokenizer's threads, and waking them costs more than the work.
        config.set_library_environment({"TOKENIZERS_PARALLELISM": "false"})
        uvloop.run(serve(settings))
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
