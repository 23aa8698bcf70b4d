"""What a master is by how it is written, whether it can be reached, and what it is asked for."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from poundlock.config import load_settings
from poundlock.errors import DefinitionError, TransientError
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.spark_launch import on_this_machine

SITE = "<configuration>{}</configuration>"
PROPERTY = "<property><name>{}</name><value>{}</value></property>"


def yarn(folder: Path, **said: str) -> Mapping[str, str]:
    properties = "".join(PROPERTY.format(name.replace("_", "."), value) for name, value in said.items())
    (folder / "yarn-site.xml").write_text(SITE.format(properties))
    return {"HADOOP_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    ("text", "kind", "addresses", "loopback"),
    [
        ("local", "local", (), True),
        ("local[4]", "local", (), True),
        ("spark://10.0.0.1:7077", "standalone", [("10.0.0.1", 7077)], False),
        ("spark://one:7077,two:7078", "standalone", [("one", 7077), ("two", 7078)], False),
        ("spark://127.0.0.1:7077", "standalone", [("127.0.0.1", 7077)], True),
        ("k8s://https://cluster:6443", "kubernetes", [("cluster", 6443)], False),
        ("k8s://cluster", "kubernetes", [("cluster", 443)], False),
        ("k8s://http://[::1]:8080", "kubernetes", [("::1", 8080)], True),
    ],
)
def test_what_a_text_means(text: str, kind: str, addresses: list[tuple[str, int]], loopback: bool) -> None:
    master = Master.of(text, {})
    assert (master.kind, list(master.addresses), master.loopback) == (kind, list(addresses), loopback)
    assert master.local == (kind == "local")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("mesos://a:1", "no master that Spark knows"),
        ("spark://host", "'host' is no host and port"),
        ("spark://host:port", "'host:port' is no host and port"),
        ("spark://a:7077,b:0", "'b:0' is no host and port"),
        ("k8s://https://", "no address of Kubernetes"),
        ("yarn", "HADOOP_CONF_DIR, which is not set"),
    ],
)
def test_what_means_nothing_is_refused(text: str, what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as raised:
        Master.of(text, {})
    assert raised.value.next


def test_the_resource_managers_are_those_of_the_configuration(tmp_path: Path) -> None:
    assert Master.of("yarn", yarn(tmp_path, yarn_resourcemanager_hostname="rm")).addresses == [("rm", 8032)]
    assert Master.of("yarn", yarn(tmp_path, yarn_resourcemanager_address="rm:81")).addresses == [("rm", 81)]
    ha = {"yarn.resourcemanager.ha.rm-ids": "a, b", "yarn.resourcemanager.address.a": "one:1"}
    ha |= {"yarn.resourcemanager.hostname.b": "two"}
    assert Master.of("yarn", yarn(tmp_path, **ha)).addresses == [("one", 1), ("two", 8032)]
    assert Master.of("yarn", yarn(tmp_path)).addresses == []
    with pytest.raises(DefinitionError, match="has no yarn-site"):
        Master.of("yarn", {"YARN_CONF_DIR": str(tmp_path / "elsewhere")})
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(DefinitionError, match="cannot be read"):
        Master.of("yarn", {"HADOOP_CONF_DIR": str(tmp_path)})


def test_one_address_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        port, closed = listening.getsockname()[1], other.getsockname()[1]
        other.close()
        Master.of(f"spark://127.0.0.1:{closed},127.0.0.1:{port}").check()
        with pytest.raises(TransientError, match=rf"127.0.0.1:{closed} \(Connection refused\)") as raised:
            Master.of(f"spark://127.0.0.1:{closed}").check()
    assert raised.value.next.startswith("see that the master runs")


def test_silence_is_not_waited_for() -> None:
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        held = [socket.socket() for _ in range(3)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(address)
        with pytest.raises(TransientError, match="cannot be reached"):
            Master.of(f"spark://127.0.0.1:{address[1]}").check(0.2)
        for each in held:
            each.close()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("master", "cores", "given", "asked"),
    [
        ("local[*]", 4, {}, {}),
        ("spark://h:1", None, {}, {}),
        ("spark://h:1", 4, {}, {"spark.cores.max": "4"}),
        ("k8s://h", 4, {}, {"spark.executor.instances": "4", "spark.executor.cores": "1"}),
        ("k8s://h", 5, {"spark.executor.cores": "2"}, {"spark.executor.instances": "3", "spark.executor.cores": "2"}),
        ("k8s://h", 4, {"spark.executor.instances": "9"}, {}),
        ("k8s://h", 4, {"spark.dynamicAllocation.enabled": "true"}, {}),
    ],
)
def test_cores_are_asked_for(
    master: str, cores: int | None, given: Mapping[str, str], asked: Mapping[str, str]
) -> None:
    assert Master.of(master).asked_for(cores, given) == asked


@pytest.mark.parametrize("cores", ["two", "0", ""])
def test_cores_of_an_executor_that_are_no_number(cores: str) -> None:
    with pytest.raises(DefinitionError, match=f"spark.executor.cores={cores} is no number of cores"):
        Master.of("k8s://https://host").asked_for(4, {"spark.executor.cores": cores})


def test_only_yarn_runs_a_driver_for_us(tmp_path: Path) -> None:
    Master.of("yarn", yarn(tmp_path)).refuse_cluster_mode()
    for text, next in (("spark://h:1", "yarn"), ("k8s://h", "poundlock deploy kubernetes"), ("local", "leave it out")):
        with pytest.raises(DefinitionError) as raised:
            Master.of(text).refuse_cluster_mode()
        assert next in raised.value.next


def test_threads_of_a_local_master() -> None:
    assert Master.of("local[*]").with_cores(3).text == "local[3]"
    assert Master.of("local[2]").with_cores(3).text == "local[2]"
    assert Master.of("local[*]").with_cores(None).text == "local[*]"


def test_what_is_done_here_is_done_here() -> None:
    assert on_this_machine(load_settings(master="spark://h:1")).master == "local[*]"
    assert on_this_machine(load_settings(master="local[3]")).master == "local[3]"
