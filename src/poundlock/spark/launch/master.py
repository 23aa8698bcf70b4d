"""What a Spark master is, by how it is written: whether its tasks run elsewhere, where it listens, and what it is asked for.

A master that cannot be reached shows here within seconds; Spark itself would go on trying for a minute and then say little.
"""

from __future__ import annotations

import os
import re
import socket
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from poundlock.errors import DefinitionError, TransientError

Kind = Literal["local", "standalone", "yarn", "kubernetes"]
Address = tuple[str, int]

_PATIENCE_S = 5.0
_PORTS = {"standalone": 7077, "yarn": 8032, "kubernetes": 443}
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1")
_YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


@dataclass(frozen=True, kw_only=True)
class Master:
    """A Spark master, and where it listens: each address if there are several, none where its configuration does not say."""

    text: str
    kind: Kind
    addresses: Sequence[Address] = ()

    @classmethod
    def of(cls, text: str, environment: Mapping[str, str] | None = None) -> Master:
        """Return the master that a text means.

        Args:
            text: such as "local[4]" or "spark://host:7077".
            environment: has HADOOP_CONF_DIR, where YARN is configured; default: that of this process.

        Raises:
            DefinitionError: Spark knows no such master, or YARN's configuration is not there.
        """
        env = os.environ if environment is None else environment
        if text == "local" or text.startswith(("local[", "local-cluster[")):
            return cls(text=text, kind="local")
        if text.startswith("spark://"):
            return cls(text=text, kind="standalone", addresses=_listed(text, text.removeprefix("spark://")))
        if text == "yarn":
            return cls(text=text, kind="yarn", addresses=_resource_managers(yarn_settings(env)))
        if text.startswith("k8s://"):
            return cls(text=text, kind="kubernetes", addresses=[_of_url(text)])
        raise DefinitionError(
            f"--master {text} is no master that Spark knows",
            next="write local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
        )

    @property
    def local(self) -> bool:
        """Whether driver and tasks share one JVM, so that tasks see the driver's files and class path."""
        return self.kind == "local"

    @property
    def threads(self) -> bool:
        """Whether tasks are threads of the driver's own JVM, which `local-cluster` has not."""
        return self.text == "local" or self.text.startswith("local[")

    @property
    def loopback(self) -> bool:
        """Whether it can only be reached on this machine, so that the driver may listen there too."""
        return self.local or (
            bool(self.addresses) and all(_LOOPBACK.fullmatch(host) is not None for host, _ in self.addresses)
        )

    def check(self, patience_s: float = _PATIENCE_S) -> None:
        """Raise TransientError unless one of its addresses takes a connection."""
        failures = []
        for host, port in self.addresses:
            try:
                socket.create_connection((host, port), patience_s).close()
            except OSError as error:
                failures.append(f"{host}:{port} ({error.strerror or error})")
            else:
                return
        if failures:
            raise TransientError(
                f"the Spark master {self.text} cannot be reached: {', '.join(failures)}", next=_NEXT[self.kind]
            )

    def refuse_cluster_mode(self) -> None:
        """Raise DefinitionError unless it can run a driver that is written in Python."""
        if self.kind == "standalone":
            raise DefinitionError(
                "a standalone cluster runs no driver in Python (--deploy-mode cluster)",
                next="leave --deploy-mode out and let the driver run here, or use yarn",
            )
        if self.kind != "yarn":
            raise DefinitionError(
                f"--deploy-mode cluster does not go with --master {self.text}",
                next="render a driver with: poundlock deploy kubernetes"
                if self.kind == "kubernetes"
                else "leave it out",
            )

    def asked_for(self, cores: int | None, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return the settings with which the cluster is asked for so many cores.

        Args:
            cores: how many; None = as many as the cluster or Spark's own settings give.

        Raises:
            DefinitionError: one of them is no number.
        """
        if cores is None or self.local:
            return {}
        if self.kind == "standalone":
            return {"spark.cores.max": str(cores)}
        if "spark.executor.instances" in given or given.get("spark.dynamicAllocation.enabled") == "true":
            return {}
        text = str(given.get("spark.executor.cores", "1"))
        if not text.isdecimal() or not (each := int(text)):
            raise DefinitionError(
                f"spark.executor.cores={text} is no number of cores", next="write --conf spark.executor.cores=2"
            )
        return {"spark.executor.instances": str(-(-cores // each)), "spark.executor.cores": str(each)}

    def with_cores(self, cores: int | None) -> Master:
        """Return a local master with so many threads, where none were given; any other as it is."""
        return replace(self, text=f"local[{cores}]") if self.text == "local[*]" and cores is not None else self


_NEXT = {
    "local": "",
    "standalone": "see that the master runs and that its port is open from here; its address stands on top of its web page",
    "yarn": "see that the resource manager runs, and that HADOOP_CONF_DIR has the yarn-site.xml of this cluster",
    "kubernetes": "see that the API server runs: kubectl cluster-info",
}


def _listed(text: str, addresses: str) -> Sequence[Address]:
    """Return the addresses of "host:port,host:port"; with a standby master there are two."""
    pairs = []
    for address in addresses.split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise DefinitionError(
                f"--master {text}: {address!r} is no host and port",
                next=f"write it as the master's web page has it: spark://HOST:{_PORTS['standalone']}",
            )
        pairs.append((host.strip("[]"), int(port)))
    return pairs


def _of_url(text: str) -> Address:
    url = text.removeprefix("k8s://")
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port or (80 if parts.scheme == "http" else _PORTS["kubernetes"])
    except ValueError:
        parts, port = urlsplit(""), 0
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise DefinitionError(
            f"--master {text} is no address of Kubernetes", next="write it as k8s://https://HOST:PORT"
        )
    return parts.hostname, port


def _yarn_folder(env: Mapping[str, str]) -> Path:
    for name in _YARN_FOLDERS:
        if folder := env.get(name):
            if (Path(folder) / "yarn-site.xml").is_file():
                return Path(folder)
            raise DefinitionError(
                f"{name}={folder} has no yarn-site.xml", next=f"set {name} to the folder with the cluster's settings"
            )
    raise DefinitionError(
        "--master yarn needs HADOOP_CONF_DIR, which is not set",
        next="export HADOOP_CONF_DIR=… with the folder that has core-site.xml and yarn-site.xml of the cluster",
    )


def yarn_settings(environment: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return what yarn-site.xml in HADOOP_CONF_DIR says.

    Raises:
        DefinitionError: the folder is not named, or the file is not there or is no XML.
    """
    folder = _yarn_folder(os.environ if environment is None else environment)
    try:
        root = xml.parse(folder / "yarn-site.xml").getroot()
    except (OSError, xml.ParseError) as error:
        raise DefinitionError(
            f"{folder / 'yarn-site.xml'} cannot be read: {error}",
            next="mend the file, or set HADOOP_CONF_DIR to another",
        ) from error
    return {p.findtext("name", "").strip(): p.findtext("value", "").strip() for p in root.iter("property")}


def _resource_managers(settings: Mapping[str, str]) -> Sequence[Address]:
    """Return where the resource managers listen, as yarn-site.xml says; none where that needs more than reading it."""
    pairs = (text.rpartition(":") for text in _of_managers(settings, "address", _PORTS["yarn"]))
    return [(name, int(port)) for name, _, port in pairs if name and port.isdigit()]


def web_addresses(settings: Mapping[str, str]) -> Sequence[str]:
    """Return where the resource managers' pages are, such as "http://host:8088", as yarn-site.xml says."""
    if settings.get("yarn.http.policy") == "HTTPS_ONLY":
        return [f"https://{text}" for text in _of_managers(settings, "webapp.https.address", 8090)]
    return [f"http://{text}" for text in _of_managers(settings, "webapp.address", 8088)]


def _of_managers(settings: Mapping[str, str], name: str, port: int) -> Iterator[str]:
    """Yield an address of each resource manager, by default this port of its host; those that are no plain text are left out."""
    ids = [part.strip() for part in settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if part.strip()]
    for suffix in [f".{each}" for each in ids] or [""]:
        hosts = (settings.get(f"yarn.resourcemanager.hostname{end}") for end in (suffix, ""))
        host = next(filter(None, hosts), "")
        text = settings.get(f"yarn.resourcemanager.{name}{suffix}") or (f"{host}:{port}" if host else "")
        if text and "$" not in text:
            yield text
