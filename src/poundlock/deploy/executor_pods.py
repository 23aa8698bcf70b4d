"""What a job's driver needs in Kubernetes to start executors as pods: rights, ports, a template of the pods, and the image's recipe.

The driver's pod owns the executors': Kubernetes removes them when it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]

DRIVER_PORTS = {"spark-driver": 7078, "spark-blocks": 7079}
TEMPLATE = "executor.yaml"
_RBAC = "rbac.authorization.k8s.io"
# What Spark's driver does with these when it lists, starts and removes executors and what belongs to them.
_RULES = (
    ("pods", ("create", "get", "list", "watch", "delete", "deletecollection", "patch", "update")),
    ("configmaps", ("create", "get", "list", "watch", "delete", "deletecollection")),
    ("persistentvolumeclaims", ("create", "get", "list", "watch", "delete", "deletecollection")),
    ("services", ("create", "get", "list", "delete", "deletecollection")),
)


def manifest(kind: str, metadata: Manifest, *, api: str = "v1", **content: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def access(name: str, metadata: Manifest, namespace: str | None) -> list[Manifest]:
    """Return the account of the driver, and its rights in its namespace."""
    subject = {"kind": "ServiceAccount", "name": name, **({} if namespace is None else {"namespace": namespace})}
    rules = [{"apiGroups": [""], "resources": [what], "verbs": list(verbs)} for what, verbs in _RULES]
    role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        manifest("ServiceAccount", metadata),
        manifest("Role", metadata, api=f"{_RBAC}/v1", rules=rules),
        manifest("RoleBinding", metadata, api=f"{_RBAC}/v1", roleRef=role, subjects=[subject]),
    ]


def driver_options(
    *, name: str, namespace: str | None, image: str, template: str, given: Mapping[str, str]
) -> list[str]:
    """Return options of `run` with which a driver in a pod reaches its executors, and they it; what is given stays.

    The name is that of the headless service, which stands for the driver's pod. Without a namespace it is the pod's own, as for Spark.
    """
    conf = {
        "spark.driver.host": name if namespace is None else f"{name}.{namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        # Else newer Sparks give executors the address that the driver binds to, 0.0.0.0, in place of its name.
        "spark.kubernetes.executor.useDriverPodIP": "false",
        "spark.driver.port": str(DRIVER_PORTS["spark-driver"]),
        "spark.driver.blockManager.port": str(DRIVER_PORTS["spark-blocks"]),
        "spark.kubernetes.driver.pod.name": f"{name}-0",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.executor.podTemplateFile": template,
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        **({} if namespace is None else {"spark.kubernetes.namespace": namespace}),
    }
    return [word for key, value in conf.items() if key not in given for word in ("--conf", f"{key}={value}")]


def template(labels: Manifest, env_secret: str | None) -> Manifest:
    """Return the pod that executors are made from; Spark adds name, arguments and resources."""
    container: Manifest = {
        "name": "executor",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **({} if env_secret is None else {"envFrom": [{"secretRef": {"name": env_secret}}]}),
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    # Of its own component: the service that stands for the driver must not find executors.
    return manifest("Pod", {"labels": {**labels, "app.kubernetes.io/component": "executor"}}, spec=spec)


def image_recipe(
    packages: Sequence[str], *, python: str, spark: str | None, java: str = "openjdk-17-jre-headless"
) -> str:
    """Return a Dockerfile for driver and executors: Python, Java, poundlock, and the program Spark starts an executor by.

    Args:
        packages: what pip installs.
        python: its version, such as "3.12".
        spark: the version of pyspark, such as "4.2.1"; None = packages say it, or it is the newest that poundlock allows.
        java: the Debian package.
    """
    pinned = [] if spark is None else [f"pyspark=={spark}"]
    wanted = " ".join(f'"{package}"' for package in [*pinned, *packages])
    return _RECIPE.format(python=python, java=java, packages=wanted)


def names_spark(package: str) -> bool:
    """Whether what pip is given says which pyspark it installs."""
    return _SPARK.match(package) is not None


_SPARK = re.compile(r"\s*pyspark\s*(\[[^]]*\]\s*)?([=<>!~@;]|$)", re.IGNORECASE)
_RECIPE = """FROM python:{python}-slim-bookworm
RUN apt-get update \\
 && apt-get install -y --no-install-recommends {java} tini procps \\
 && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir {packages}
RUN ln -s "$(python -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')" /opt/spark
ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=/usr/local/bin/python
RUN useradd --uid 1000 --create-home poundlock
USER 1000
WORKDIR /home/poundlock
ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "poundlock.deploy.entrypoint"]
"""
