"""Kubernetes objects for one job: its file, its token, its storage, and one pod that Kubernetes never starts twice at a time.

The pod is a stateful set's, because a deployment starts a second one while a lost node may still run the first.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poundlock.deploy.executor_pods import DRIVER_PORTS, TEMPLATE, access, driver_options, manifest, template
from poundlock.deploy.job import Deployed
from poundlock.deploy.yaml import documents
from poundlock.errors import DefinitionError, refusing
from poundlock.values import size

Manifest = dict[str, Any]

STATE = "/var/lib/poundlock"
JOB = "/etc/poundlock/job"
TOKEN = "/etc/poundlock/token"
TLS = "/etc/poundlock/tls"
TOKEN_KEY = "token"
_LONGEST_NAME = 52  # Kubernetes appends a hash of eleven to a label of 63
_LARGEST_CONFIG_MAP = 1 << 20
_OUTSIDE_HEAP = 1 << 30  # Python workers, and what a JVM needs beside its heap
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i?|k)?")


@dataclass(frozen=True, kw_only=True)
class KubernetesCluster:
    """What Kubernetes has to know beside the job.

    Args:
        namespace: where they go; None = where `kubectl` puts them.
        image: with Python, poundlock, its extra `rest`, Java and what the job imports.
        storage: size of the volume of state, as Kubernetes writes it.
        token_secret: name of a Secret that has the token under "token"; None = one is made.
        tls_secret: name of a Secret of the type kubernetes.io/tls, with which REST speaks TLS; None = it does not, within the cluster's network.
        env_secret: name of a Secret whose entries become variables; None = there is none.
        executors: whether the tasks run in pods of their own, which the driver starts; else they run in its pod.
    """

    name: str
    image: str
    namespace: str | None = None
    storage: str = "10Gi"
    storage_class: str | None = None
    cpu: int = 1
    rest_port: int = 8081
    token_secret: str | None = None
    tls_secret: str | None = None
    env_secret: str | None = None
    executors: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "--name", longest=_LONGEST_NAME)
        for name in ("namespace", "storage_class", "token_secret", "tls_secret", "env_secret"):
            if (value := getattr(self, name)) is not None:
                check_name(value, f"--{name.replace('_', '-')}")
        if not _IMAGE.fullmatch(self.image):
            raise DefinitionError(
                f"--image {self.image!r} is no name of an image", next="write it as registry/name:tag, in lower case"
            )
        if not _QUANTITY.fullmatch(self.storage):
            raise DefinitionError(f"--storage {self.storage} is no amount", next="write it as Kubernetes does: 10Gi")


def check_name(name: str, option: str, *, longest: int = 63) -> None:
    """Raise DefinitionError if Kubernetes would not take a name (RFC 1123, and a letter first)."""
    if _LABEL.fullmatch(name) and len(name) <= longest:
        return
    fitting = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("-0123456789")[:longest].strip("-") or "job"
    raise DefinitionError(
        f"{name!r} is no name for Kubernetes: lower-case letters, digits and -, at most {longest}, a letter first",
        next=f"give one: {option} {fitting}",
    )


def render(deployed: Deployed, cluster: KubernetesCluster, *, config: Path | None) -> list[Manifest]:
    """Return the objects of a job.

    Raises:
        DefinitionError: the job's file or the settings file cannot go into a ConfigMap.
    """
    files = {"job.py": _text(deployed.file)}
    if config is not None:
        files["poundlock.toml"] = _text(config)
    if cluster.executors:
        files[TEMPLATE] = documents([template(_instance(cluster), cluster.env_secret)])
    if sum(len(text.encode()) for text in files.values()) > _LARGEST_CONFIG_MAP:
        raise DefinitionError(
            f"{deployed.file} is larger than the 1 MiB a ConfigMap holds", next="put what it imports into the image"
        )
    digest = hashlib.sha256("\0".join(f"{k}\0{v}" for k, v in sorted(files.items())).encode()).hexdigest()
    objects: list[Manifest] = []
    if cluster.token_secret is None:
        token = {TOKEN_KEY: secrets.token_urlsafe(32)}
        objects.append(manifest("Secret", _metadata(cluster, "-rest"), type="Opaque", stringData=token))
    if cluster.executors:
        objects += access(cluster.name, _metadata(cluster), cluster.namespace)
    objects.append(manifest("ConfigMap", _metadata(cluster, "-job"), data=files))
    objects.append(_service(cluster))
    objects.append(_stateful_set(deployed, cluster, digest, has_config=config is not None))
    return objects


def _metadata(cluster: KubernetesCluster, suffix: str = "") -> Manifest:
    place = {} if cluster.namespace is None else {"namespace": cluster.namespace}
    return {"name": f"{cluster.name}{suffix}", **place, "labels": _labels(cluster)}


def _instance(cluster: KubernetesCluster) -> Manifest:
    return {"app.kubernetes.io/name": "poundlock", "app.kubernetes.io/instance": cluster.name}


def _labels(cluster: KubernetesCluster) -> Manifest:
    return _instance(cluster) | ({"app.kubernetes.io/component": "driver"} if cluster.executors else {})


def _service(cluster: KubernetesCluster) -> Manifest:
    """Return the headless service: the driver's name in the cluster, which never stands for two."""
    ports = [{"name": "rest", "port": cluster.rest_port, "targetPort": "rest"}]
    early = {}
    if cluster.executors:
        ports += [{"name": name, "port": port, "targetPort": name} for name, port in DRIVER_PORTS.items()]
        early = {"publishNotReadyAddresses": True}  # the driver is ready when it has executors, and they need its name
    spec = {"clusterIP": "None", **early, "selector": _labels(cluster), "ports": ports}
    return manifest("Service", _metadata(cluster), spec=spec)


def _stateful_set(deployed: Deployed, cluster: KubernetesCluster, digest: str, *, has_config: bool) -> Manifest:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": cluster.storage}}}
    if cluster.storage_class is not None:
        claim["storageClassName"] = cluster.storage_class
    # Another job file is another pod.
    pod_metadata = {"labels": _labels(cluster), "annotations": {"poundlock/files": digest}}
    spec = {
        "serviceName": cluster.name,
        "replicas": 1,
        "selector": {"matchLabels": _labels(cluster)},
        "template": {"metadata": pod_metadata, "spec": _pod(deployed, cluster, has_config=has_config)},
        "volumeClaimTemplates": [{"metadata": {"name": "state", "labels": _labels(cluster)}, "spec": claim}],
    }
    return manifest("StatefulSet", _metadata(cluster), api="apps/v1", spec=spec)


def _pod(deployed: Deployed, cluster: KubernetesCluster, *, has_config: bool) -> Manifest:
    token = cluster.token_secret or f"{cluster.name}-rest"
    return {
        "terminationGracePeriodSeconds": deployed.grace_s,
        "automountServiceAccountToken": cluster.executors,
        **({"serviceAccountName": cluster.name} if cluster.executors else {}),
        # Python workers of a JVM that was killed are nobody's children: the pod's first process takes their exit codes.
        "shareProcessNamespace": True,
        "securityContext": {"fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(deployed, cluster, has_config=has_config)],
        "volumes": [
            {"name": "job", "configMap": {"name": f"{cluster.name}-job"}},
            {"name": "token", "secret": {"secretName": token, "defaultMode": 0o440}},
            *_tls_of(cluster, {"name": "tls", "secret": {"secretName": cluster.tls_secret, "defaultMode": 0o440}}),
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _container(deployed: Deployed, cluster: KubernetesCluster, *, has_config: bool) -> Manifest:
    memory = f"{(size(deployed.settings.driver_memory) + _OUTSIDE_HEAP) >> 20}Mi"
    probe = {"exec": {"command": ["python", "-m", "poundlock.rest.probe"]}, "timeoutSeconds": 10}
    return {
        "name": "driver",
        "image": cluster.image,
        "command": ["python", "-m", "poundlock", "run", deployed.target(f"{JOB}/job.py")],
        "args": [*deployed.arguments, *_to_executors(deployed, cluster)],
        "workingDir": STATE,  # relative paths of the job are on the volume
        "env": [{"name": k, "value": v} for k, v in _environment(deployed, cluster, has_config=has_config).items()],
        **({} if cluster.env_secret is None else {"envFrom": [{"secretRef": {"name": cluster.env_secret}}]}),
        "ports": [
            {"name": "rest", "containerPort": cluster.rest_port},
            *({"name": n, "containerPort": p} for n, p in DRIVER_PORTS.items() if cluster.executors),
        ],
        # A start may have a large state to bring back.
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 20},
        # The job goes on without its server, so it takes minutes of silence before it is started again.
        "livenessProbe": {**probe, "periodSeconds": 30, "failureThreshold": 10},
        "resources": {"requests": {"cpu": str(cluster.cpu), "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "state", "mountPath": STATE},
            {"name": "job", "mountPath": JOB, "readOnly": True},
            {"name": "token", "mountPath": TOKEN, "readOnly": True},
            *_tls_of(cluster, {"name": "tls", "mountPath": TLS, "readOnly": True}),
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _to_executors(deployed: Deployed, cluster: KubernetesCluster) -> list[str]:
    if not cluster.executors:
        return []
    return driver_options(
        name=cluster.name,
        namespace=cluster.namespace,
        image=cluster.image,
        template=f"{JOB}/{TEMPLATE}",
        given={**deployed.job.spark, **deployed.settings.spark},
    )


def _environment(deployed: Deployed, cluster: KubernetesCluster, *, has_config: bool) -> dict[str, str]:
    return {
        "POUNDLOCK_STATE_DIR": STATE,
        "POUNDLOCK_CACHE_DIR": f"{STATE}/cache",
        "POUNDLOCK_DRIVER_MEMORY": deployed.settings.driver_memory,
        "POUNDLOCK_REST_PORT": str(cluster.rest_port),
        "POUNDLOCK_REST_BIND_ADDRESS": "0.0.0.0",
        "POUNDLOCK_REST_TOKEN_FILE": f"{TOKEN}/{TOKEN_KEY}",
        **_tls_settings(cluster),
        **({"POUNDLOCK_CONFIG": f"{JOB}/poundlock.toml"} if has_config else {}),
        **deployed.environment,
    }


def _tls_of(cluster: KubernetesCluster, what: Manifest) -> list[Manifest]:
    return [] if cluster.tls_secret is None else [what]


def _tls_settings(cluster: KubernetesCluster) -> dict[str, str]:
    """Return how REST is reached from other pods; without a certificate that has to be allowed by name."""
    if cluster.tls_secret is None:
        return {"POUNDLOCK_REST_INSECURE": "true"}
    return {
        "POUNDLOCK_SECURITY_SSL_REST_ENABLED": "true",
        "POUNDLOCK_SECURITY_SSL_REST_CERTIFICATE_FILE": f"{TLS}/tls.crt",
        "POUNDLOCK_SECURITY_SSL_REST_KEY_FILE": f"{TLS}/tls.key",
    }


def _text(path: Path) -> str:
    try:
        with refusing(f"{path} cannot be read", next="give a file that you may read"):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{path} is not UTF-8", next="store it as UTF-8") from error


def install_commands(cluster: KubernetesCluster, path: Path | None) -> Sequence[str]:
    """Return what to type to start the job, and to stop it for good."""
    place = "" if cluster.namespace is None else f" -n {cluster.namespace}"
    return (f"kubectl apply{place} -f {path or '-'}", f"kubectl scale{place} --replicas=0 statefulset/{cluster.name}")
