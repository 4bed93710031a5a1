"""The `triptych` command: reads the arguments, builds what a command needs, says what went wrong."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from cli import chat as chatting
from cli import doctor as doctors
from cli import down as downs
from cli import models as model_commands
from cli import status as statuses
from cli import store as stores
from cli import topic_admin
from cli import up as ups
from cli.errors import CommandFailed
from cli.gateway_client import GatewayClient
from cli.local import state
from cli.local.pools import parse_scale
from cli.local.stack import UpOptions
from infra import settings as config
from infra.clock import SystemClock
from infra.log import setup as log_setup
from infra.manifests import WrongManifest
from infra.model_files import ModelMissing
from infra.model_sources import CannotFetch
from infra.settings import WrongSetting

DEFAULT_HOME = Path(".triptych")
DEFAULT_MODEL = "smollm2-135m"
# What the person at the terminal can mend; anything else is a fault of ours and shows its traceback.
EXPECTED = (CommandFailed, WrongSetting, WrongManifest, ModelMissing, CannotFetch)

app = typer.Typer(
    help="Omni-modal model serving as an event pipeline. Begin with: triptych up",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="The topics that the served models need.", no_args_is_help=True)
models_app = typer.Typer(help="Model manifests and weights.", no_args_is_help=True)
worker_app = typer.Typer(help="Run one worker in the foreground, with settings from TRIPTYCH_*.", no_args_is_help=True)
store_app = typer.Typer(help="What the object store keeps.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(store_app, name="store")
app.add_typer(models_app, name="models")
app.add_typer(worker_app, name="worker")

Home = Annotated[Path, typer.Option(help="Folder of the stack's data, logs and stack.json.", envvar="TRIPTYCH_HOME")]
Engine = Annotated[
    Literal["vllm", "stub", "sim"],
    typer.Option(
        help="vllm: the real model. stub: made-up tokens, for trying the pipeline. sim: made-up tokens at the pace and "
        "with the cache of a modelled GPU worker."
    ),
]

Gateways = Annotated[int, typer.Option(min=0, help="Gateway processes on the one port; 0 = TRIPTYCH_GATEWAYS.")]


@app.command()
def up(
    broker: Annotated[
        str,
        typer.Option(
            help="auto: Apache Kafka where Java and its jars are to be had, else embedded (memory-only). kafka, "
            "embedded: that one. HOST:PORT: a broker that runs already."
        ),
    ] = "auto",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway.")] = 8000,
    gateways: Gateways = 0,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="How many LLM workers in all, shared out among the LLMs served.")
    ] = 3,
    model: Annotated[
        str,
        typer.Option(help="Which models to serve, comma-separated; see: triptych models list. All that come with it."),
    ] = "",
    scale: Annotated[
        str,
        typer.Option(help="How many workers a pool has, e.g. 'encode.vision=2,decode.image=0'; 1 each if not given."),
    ] = "",
    engine: Engine = "vllm",
    media_engine: Annotated[
        Literal["real", "sim"], typer.Option(help="Of encoders and decoders. sim: made-up results at a set pace.")
    ] = "real",
    worker_args: Annotated[
        str,
        typer.Option(help="More arguments for each LLM worker, e.g. '--slots 4'; see: python -m workers llm --help."),
    ] = "",
    media_args: Annotated[
        str, typer.Option(help="More arguments for each encoder and decoder, e.g. '--sim-ms 100'.")
    ] = "",
    home: Home = DEFAULT_HOME,
) -> None:
    """Start everything on this machine: broker, Valkey, S3, gateway, and the pools of workers. Ctrl-C stops all of it.

    Fetches what is missing of the models first. Parts that die are started again.
    """
    options = UpOptions(
        broker=broker,
        port=port,
        gateways=gateways,
        workers=workers,
        models=model,
        engine=engine,
        media_engine=media_engine,
        scale=parse_scale(scale),
        worker_args=shlex.split(worker_args),
        media_args=shlex.split(media_args),
        home=home,
    )
    settings = config.load()
    log_setup("warning")
    ups.run(options, settings, SystemClock(), Console())


@app.command()
def down(home: Home = DEFAULT_HOME) -> None:
    """Stop the stack that `triptych up` runs in another terminal."""
    print("stopped:", ", ".join(downs.down(home)))


@app.command()
def status(home: Home = DEFAULT_HOME) -> None:
    """Show parts, workers, partitions and readiness. Ends with 1 when the gateway is not ready."""
    settings = state.applied(config.load(), home)
    if not statuses.show(settings, home, topic_admin.served(settings), SystemClock(), Console()):
        raise typer.Exit(1)


@app.command()
def doctor(
    home: Home = DEFAULT_HOME, port: Annotated[int, typer.Option(help="Port the gateway is to have.")] = 8000
) -> None:
    """Check Java, broker, Redis, store, models, memory and ports, and say how to mend what is wrong."""
    findings = doctors.examine(config.load(), home, port)
    Console().print(doctors.table(findings))
    if any(one.verdict == "problem" for one in findings):
        raise typer.Exit(1)


@app.command()
def chat(
    model: Annotated[str, typer.Option(help="Which model; the first one served when not given.")] = "",
    url: Annotated[str, typer.Option(help="Gateway; the local stack's when not given.", envvar="TRIPTYCH_URL")] = "",
    system: Annotated[str, typer.Option(help="System message.")] = "",
    max_tokens: Annotated[int, typer.Option(min=0, help="Longest answer, in tokens; 0 = up to the context.")] = 0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Talk to a model in the terminal. Ctrl-C stops an answer, /new begins anew, /exit or Ctrl-D ends."""
    settings = config.load()
    where = url or state.gateway_url(settings, home)
    client = GatewayClient(where, config.other("API_KEY"), timeout_s=float(settings.default_deadline_s))
    options = chatting.ChatOptions(model or chatting.first_model(client), system, max_tokens or None)
    chatting.run(client, options, Console())


@app.command()
def gateway(gateways: Gateways = 0) -> None:
    """Run the gateway in the foreground, with settings from TRIPTYCH_*."""
    _become("gateway", *(["--gateways", str(gateways)] if gateways else []))


@worker_app.command("llm")
def worker_llm(
    model: Annotated[str, typer.Option(help="Id of the model to serve.")] = DEFAULT_MODEL, engine: Engine = "vllm"
) -> None:
    """Tokens in; text and token ids out."""
    _become("workers", "llm", "--model", model, "--engine", engine)


@topics_app.command("create")
def topics_create(home: Home = DEFAULT_HOME) -> None:
    """Create the topics of the served models (TRIPTYCH_MODELS) where they are missing; harmless when repeated."""
    settings = state.applied(config.load(), home)
    done = topic_admin.create(settings, topic_admin.served(settings))
    print("\n".join(done) or "all there already")


@topics_app.command("list")
def topics_list(home: Home = DEFAULT_HOME) -> None:
    """Show the topics: partitions, messages, lag, retention, who writes and who reads."""
    settings = state.applied(config.load(), home)
    Console().print(topic_admin.table(settings, topic_admin.served(settings)))


@topics_app.command("asyncapi")
def topics_asyncapi() -> None:
    """Print the AsyncAPI description of the topics that encoders and decoders read, as JSON."""
    from topics import asyncapi  # noqa: PLC0415 - FastStream takes most of a second that no other command should pay

    settings = config.load()
    print(asyncapi.document(settings, topic_admin.served(settings)).decode())


@models_app.command("list")
def models_list() -> None:
    """Show the known models and whether their weights are on disk."""
    Console().print(model_commands.table(config.load()))


@models_app.command("pull")
def models_pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of known models, or hf:organisation/model[@revision]; TRIPTYCH_MODELS if none."),
    ] = None,
) -> None:
    """Fetch the weights of models, once; checked by hash."""
    settings = config.load()
    for name in names or settings.model_ids:
        model_commands.pull(name, settings, Console())


@store_app.command("sweep")
def store_sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be deleted.")] = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Delete what has been kept for long enough; gateways do that by themselves every TRIPTYCH_SWEEP_EVERY_S.

    Ends with 1 when something could not be deleted.
    """
    settings = state.applied(config.load(), home)
    if not stores.sweep(settings, dry_run, SystemClock(), Console(), Console(stderr=True)):
        raise typer.Exit(1)


@app.command()
def train(
    model: Annotated[Literal["omni-tiny"], typer.Argument(help="Which model of our own.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights.")] = DEFAULT_HOME / "trained",
    seed: Annotated[int, typer.Option(help="The same seed gives the same weights on the same machine.")] = 0,
    quick: Annotated[bool, typer.Option(help="Go all the way in a minute or two, learning nothing.")] = False,
) -> None:
    """Train a model of our own: a quarter of an hour on two idle cores. Prints progress, and the figures at the end."""
    more = ["--quick"] if quick else []
    _become("workers", "train", model, "--out", str(out), "--seed", str(seed), *more)


def _become(module: str, *arguments: str) -> None:
    """Turn into that process: same id, same terminal, signals go straight to it."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def main() -> None:
    try:
        app()
    except EXPECTED as error:
        Console(stderr=True).print(f"triptych: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
