"""The embedded broker is a real one: data stays over a crash, ports stay, and it does not outlive its parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from poundlock.cli.main import main
from poundlock.errors import DefinitionError
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = pytest.mark.services


def test_topics_records_and_offsets(kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    records = [
        Record("a", key="k", partition=0, timestamp_ms=1545184226432, headers=[("h", b"1"), ("n", None)]),
        Record(None, key=b"k", partition=1),
        Record(b"", partition=1),
    ]
    assert kafka_broker.produce(topic, records) == 3
    assert kafka_broker.begin_offsets(topic) == {0: 0, 1: 0}
    assert kafka_broker.end_offsets(topic) == {0: 1, 1: 2}
    read = kafka_broker.read(topic)
    assert [(r.partition, r.offset, r.key, r.value) for r in read] == [
        (0, 0, b"k", b"a"),
        (1, 0, b"k", None),
        (1, 1, None, b""),
    ]
    assert read[0].timestamp_ms == 1545184226432  # eight years old, and still there
    assert list(read[0].headers) == [("h", b"1"), ("n", None)]
    kafka_broker.delete_records(topic, {1: 1})
    assert kafka_broker.begin_offsets(topic) == {0: 0, 1: 1}
    kafka_broker.add_partitions(topic, 3)
    assert kafka_broker.end_offsets(topic) == {0: 1, 1: 2, 2: 0}
    before = kafka_broker.topic_id(topic)
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic)
    assert kafka_broker.topic_id(topic) != before


def test_data_and_ports_stay_over_a_crash(own_kafka_broker: EmbeddedKafka) -> None:
    broker = own_kafka_broker
    broker.create_topic("t")
    broker.produce("t", ["a", "b"])
    servers, pid = broker.bootstrap_servers, broker.pid
    broker.kill()
    assert not broker.running
    broker.start()
    assert broker.bootstrap_servers == servers
    assert broker.pid != pid
    assert [r.value for r in broker.read("t")] == [b"a", b"b"]
    home = broker.home
    broker.close()
    assert not home.exists()


def test_it_does_not_outlive_its_parent(tmp_path: Path) -> None:
    # Started from a thread that ends at once: only the end of the process may take the broker along.
    code = (
        "import sys, threading, time\n"
        "from poundlock.testing.kafka import EmbeddedKafka\n"
        f"broker = EmbeddedKafka(home={str(tmp_path)!r})\n"
        "thread = threading.Thread(target=broker.start); thread.start(); thread.join()\n"
        "broker.create_topic('t'); print(broker.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        assert broker.name().startswith("java")
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        _, said = parent.communicate()
    psutil.wait_procs([broker], timeout=30)
    assert not broker.is_running() or broker.status() == psutil.STATUS_ZOMBIE
    assert said == ""


def test_a_taken_port_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = EmbeddedKafka(port=port)
        with pytest.raises(DefinitionError, match=f"port {port} on 127.0.0.1 is taken"):
            broker.start()
        broker.close()


def test_nothing_is_written_to_the_terminal(tmp_path: Path) -> None:
    code = (
        "from poundlock.testing.kafka import EmbeddedKafka\n"
        f"with EmbeddedKafka(home={str(tmp_path)!r}) as broker:\n"
        "    broker.create_topic('t'); broker.produce('t', ['a']); broker.kill(); broker.start()\n"
        "    assert len(broker.read('t')) == 1\n"
    )
    began = time.time()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "broker.log").stat().st_mtime >= began - 1
    assert (tmp_path / "data").is_dir()


def test_lines_are_sent_to_a_topic(
    kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, lines = new_topic(2), tmp_path / "lines"
    lines.write_bytes(b"first\n\nthird\r\nlast")
    place = ["--servers", kafka_broker.bootstrap_servers]
    assert main(["kafka", "send", topic, str(lines), *place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"topic": topic, "sent": 4}
    assert sorted(record.value or b"" for record in kafka_broker.read(topic)) == [b"", b"first", b"last", b"third"]
    for arguments, what in (
        (["no-such-topic", str(lines), *place], f"there is no topic no-such-topic at {kafka_broker.bootstrap_servers}"),
        ([topic, str(tmp_path / "none"), *place], f"{tmp_path}/none cannot be read"),
        (["a b", str(lines), *place], "'a b' is no name of a topic"),
    ):
        assert main(["kafka", "send", *arguments]) == 2
        assert what in capsys.readouterr().err
