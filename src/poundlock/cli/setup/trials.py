"""`poundlock kafka up` and `demo`: a real single-node Kafka broker, as long as the command runs, and the reference job on one, killed
twice and audited: its exit code is the verdict."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, missing_package, refusing

app = typer.Typer(name="kafka", help="A Kafka broker for trials.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """A Kafka broker for trials."""


@app.command("up")
def command(
    topic: Annotated[
        list[str] | None, Option("--topic", metavar="NAME[:PARTITIONS]", help="Create a topic; may be repeated.")
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port for clients; 0 = any free one.")] = 9092,
    home: Annotated[Path | None, Option("--dir", help="Keep its data here; default: a temporary folder.")] = None,
    json: JsonOption = False,
) -> None:
    """Run a Kafka broker on this machine until Ctrl-C."""
    import socket

    from poundlock.testing.kafka import EmbeddedKafka

    topics = [parse_topic(text) for text in topic or ()]
    output, ended = Output(json), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    next = "stop the program that holds it, or type: poundlock kafka up --port 0"
    with refusing(f"port {port} cannot be used", next=next):  # before anything is fetched or started
        socket.create_server(("127.0.0.1", port)).close()
    with EmbeddedKafka(home=home, port=port or None, progress=output.note) as broker:
        for name, partitions in topics:
            broker.create_topic(name, partitions)
        servers = broker.bootstrap_servers
        text = [f"Kafka is up at {servers}"]
        text += [f"topic {name} with {partitions} partitions" for name, partitions in topics]
        text.append("Press Ctrl-C to stop it.")
        output.show(text, {"bootstrap_servers": servers, "topics": dict(topics)})
        ended.wait()
    output.say("Kafka is stopped.")


def parse_topic(text: str) -> tuple[str, int]:
    """Return name and number of partitions of "events:3"; without a number it is 1.

    Raises:
        DefinitionError: the name or the number is none.
    """
    from poundlock.connectors.kafka.checks import is_topic

    name, colon, count = text.partition(":")
    if not is_topic(name) or (colon and (not count.isdecimal() or int(count) < 1)):
        raise DefinitionError(f"--topic {text} is not NAME:PARTITIONS", next="write --topic events:3")
    return name, int(count) if colon else 1


def demo(
    directory: Annotated[Path, Option("--dir", help="Where it works; cleared at the start.")] = Path("build/demo"),
    events: Annotated[int, Option(min=1, help="How many events are produced.")] = 200_000,
    kills: Annotated[int, Option(min=0, help="How often the driver is killed.")] = 2,
) -> int:
    """Run the reference job on a real Kafka broker.

    Its driver is killed twice while it writes; then every file is compared with what was produced.
    """
    try:
        from poundlock.demo.program import DemoSettings, run_demo
    except ModuleNotFoundError as missing:
        raise missing_package("the demo", str(missing.name), "demo") from missing

    return run_demo(DemoSettings(directory=directory, events=events, kills=kills)).exit_code
