"""`poundlock kafka up` and `demo`: a real single-node Kafka broker, as long as the command runs, and the reference job on one, killed
twice and audited: its exit code is the verdict."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, TransientError, did_you_mean, missing_package, refusing

_ANSWER_S = 30.0

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


@app.command("send")
def send(
    topic: Annotated[str, Argument(metavar="TOPIC", help="The topic, which has to be there.")],
    file: Annotated[Path, Argument(metavar="[FILE]", help="Lines to send; - is standard input.")] = Path("-"),
    servers: Annotated[str, Option("--servers", metavar="HOST:PORT", help="The broker.")] = "localhost:9092",
    json: JsonOption = False,
) -> None:
    """Send lines to a topic, each as a record.

    They come from a file or from standard input, and are spread over the partitions. For trials: a line that was sent before a mistake stays sent.
    """
    from poundlock.connectors.kafka.checks import is_topic
    from poundlock.connectors.kafka.client_loader import confluent

    if not is_topic(topic):
        raise DefinitionError(f"{topic!r:.200} is no name of a topic", next="write poundlock kafka send events FILE")
    output, sent = Output(json), 0
    errors: list[str] = []
    client = confluent("admin").AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        known = client.list_topics(timeout=_ANSWER_S).topics
    except confluent().KafkaException as error:
        raise DefinitionError(
            f"no broker answers at {servers}: {error.args[0].str()}",
            next="name it: --servers HOST:PORT; or start one: poundlock kafka up",
        ) from error
    if topic not in known:
        raise DefinitionError(
            f"there is no topic {topic} at {servers}",
            next=did_you_mean(topic, known, f"create it: poundlock kafka up --topic {topic}:3"),
        )
    producer = confluent().Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def delivered(error: object, record: object) -> None:
        if error is not None:
            errors.append(str(error))

    with refusing(f"{file} cannot be read", next="name a file of lines, or - for standard input"):
        for line in sys.stdin.buffer if file == Path("-") else file.open("rb"):
            while True:
                try:
                    producer.produce(topic, line.rstrip(b"\r\n"), on_delivery=delivered)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
            sent += 1
            producer.poll(0)
    left = producer.flush(_ANSWER_S)
    if errors or left:
        raise TransientError(
            f"{len(errors) + left} of {sent} records were not taken by {servers}: {errors[0] if errors else 'it does not answer'}",
            next="see that the broker runs, and send them again",
        )
    output.show(f"{sent:,} records sent to {topic}", {"topic": topic, "sent": sent})


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
