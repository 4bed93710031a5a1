"""`python -m workers llm --model ID`, `... encode --pool POOL`, `... decode --kind KIND`: one worker process."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TypeAlias

from infra import log as logs
from infra import settings as config
from infra.faults import Missing, Refused, Unavailable
from infra.manifests import WrongManifest
from infra.model_files import ModelMissing
from topics.steering.policy import UnknownPolicy
from topics.tokens import UnusableTokenizer
from workers import training
from workers.engines.media_catalog import NoSuchEngine
from workers.options import DecodeOptions, EncodeOptions, WorkerOptions

Options: TypeAlias = WorkerOptions | EncodeOptions | DecodeOptions

EXIT_UNUSABLE, EXIT_TRY_AGAIN = 2, 1  # a supervisor starts the second one again


def options(argv: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m workers", description="Run one worker of a pool.")
    pools = parser.add_subparsers(dest="worker", required=True)
    llm = pools.add_parser("llm", help="tokens in; text and token ids out")
    llm.add_argument("--model", required=True, help="id of a served model (see `triptych models list`)")
    llm.add_argument("--engine", choices=["vllm", "stub", "sim"], default="vllm", help="stub, sim: no model")
    llm.add_argument("--slots", type=int, default=0, help="jobs taken at once; 0 = what the engine takes")
    llm.add_argument("--step-ms", type=float, default=20.0, help="stub only: milliseconds a token")
    llm.add_argument(
        "--first-ms", type=float, help="stub only: milliseconds to the first token; as --step-ms if not given"
    )
    llm.add_argument("--speedup", type=float, default=1.0, help="sim only: how much faster than the modelled worker")
    encode = pools.add_parser("encode", help="pictures, sound and video in; artifacts out, for all served models")
    encode.add_argument("--pool", choices=["vision", "audio"], required=True)
    encode.add_argument("--engine", choices=["real", "sim"], default="real", help="sim: no model")
    encode.add_argument("--sim-ms", type=float, default=50.0, help="sim only: milliseconds an item")
    decode = pools.add_parser("decode", help="codes and text in; pictures and speech out, for all served models")
    decode.add_argument("--kind", choices=["image", "audio"], required=True)
    decode.add_argument("--engine", choices=["real", "sim"], default="real", help="sim: no model")
    decode.add_argument("--sim-ms", type=float, default=50.0, help="sim only: milliseconds a step, or a sentence")
    given = parser.parse_args(argv)
    if given.worker == "encode":
        return EncodeOptions(given.pool, given.engine, given.sim_ms / 1000)
    if given.worker == "decode":
        return DecodeOptions(given.kind, given.engine, given.sim_ms / 1000)
    first_s = None if given.first_ms is None else given.first_ms / 1000
    return WorkerOptions(given.model, given.engine, given.slots, given.step_ms / 1000, first_s, given.speedup)


async def run(settings: config.Settings, given: Options) -> int:
    """Serve until told to stop; returns the exit code. A pool imports only what it needs itself."""
    match given:
        case WorkerOptions():
            from workers import llm_process

            return await llm_process.serve(settings, given)
        case EncodeOptions():
            from workers import encode_process

            return await encode_process.serve(settings, given)
        case DecodeOptions():
            from workers import decode_process

            return await decode_process.serve(settings, given)


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["train"]:
        return training.main(arguments[1:], Path(config.load().model_dir))
    given = options(arguments)
    try:
        settings = config.load()
        logs.setup(settings.log_level)
        return asyncio.run(run(settings, given))
    except (
        config.WrongSetting,
        WrongManifest,
        ModelMissing,
        NoSuchEngine,
        UnknownPolicy,
        UnusableTokenizer,
        Refused,
    ) as error:
        print(f"workers: {error}", file=sys.stderr)  # noqa: T201 - the command line's own words
        return EXIT_UNUSABLE
    except (Unavailable, Missing) as error:  # what is not there yet may come
        print(f"workers: {error}", file=sys.stderr)  # noqa: T201 - the command line's own words
        return EXIT_TRY_AGAIN


if __name__ == "__main__":
    sys.exit(main())
