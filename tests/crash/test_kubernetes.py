"""A job in pods of a real cluster of one node: executors, the driver and whole pods are killed; the output is held against a model."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.errors import TransientError
from poundlock.testing.minio import minio_program
from support.kubernetes_cluster import ADDRESS, PROGRAMS, EmbeddedKubernetes, lacking

pytestmark = [pytest.mark.crash, pytest.mark.engine, pytest.mark.services, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs" / "counted_on_s3.py"
IMAGE = "localhost/poundlock:test"
KEY, PASSWORD = "poundlock", "poundlock-secret"
STORE = {
    "AWS_ENDPOINT_URL": f"http://{ADDRESS}:9000",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": PASSWORD,
    "AWS_REGION": "us-east-1",
}
# Run where the cluster's addresses are: prints what a reader of the output sees, and how many decisions there are.
LOOK = """
import json, sys
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import open_storage

store = sys.argv[1]
out = open_storage(f"{store}/out")
names = [each.path for each in out.list() if not any(part.startswith(".") for part in each.path.split("/"))]
rows = [json.loads(line) for name in names for line in out.read(name).splitlines()]
newest = Ledger(open_storage(f"{store}/checkpoint")).newest()
print(json.dumps({"rows": rows, "decisions": 0 if newest is None else newest.number}))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKubernetes]:
    if (missing := lacking()) is not None:
        pytest.skip(f"no Kubernetes here: it lacks {missing}")
    if not (PROGRAMS / "image.tar").exists():
        pytest.skip(f"no image in {PROGRAMS}: run tools/kubernetes_for_tests.py")
    with EmbeddedKubernetes() as started:
        (started.home / "objects").mkdir()
        account = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
        place = ["--address", f"{ADDRESS}:9000", str(started.home / "objects")]
        started.run_inside(
            "minio", str(minio_program()), "server", "--quiet", *place, environment={**os.environ, **account}
        )
        started.load(PROGRAMS / "image.tar")
        yield started


class Deployed:
    """The job in its namespace."""

    def __init__(self, cluster: EmbeddedKubernetes, name: str, folder: Path, rows: int) -> None:
        self.cluster, self.name, self.rows = cluster, name, rows
        self.store = f"s3://{name}/job"
        (cluster.home / "objects" / name).mkdir()
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl(
            "create", "secret", "generic", "store", "-n", name, *(f"--from-literal={k}={v}" for k, v in STORE.items())
        )
        self.file = folder / f"{name}.yaml"

    def start(self, *arguments: str) -> None:
        """Render the job's objects as a user does, and apply them."""
        variables = {"COUNTED_STORE": self.store, "COUNTED_ROWS": str(self.rows)}
        given = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
        os.environ.update(variables)  # the file is read here, too
        command = ["deploy", "kubernetes", str(JOB), "--image", IMAGE, "--name", "counted", "-n", self.name]
        command += ["--env-secret", "store", "--storage", "1Gi", "-D", "driver_memory=512m", *given, *arguments]
        assert main([*command, "-o", str(self.file)]) == 0
        self.cluster.kubectl("apply", "-n", self.name, "-f", str(self.file))

    def look(self) -> dict[str, Any]:
        """Return what a reader sees, and the number of the newest decision."""
        environment = {**os.environ, **STORE, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = self.cluster.inside(sys.executable, "-c", LOOK, self.store, env=environment)
        if ran.returncode != 0:
            raise TransientError(ran.stderr)
        return json.loads(ran.stdout)

    def wait(self, what: str, limit_s: float = 240) -> None:
        """Wait for two more decisions."""
        began, first = time.monotonic(), self.look()["decisions"]
        while (now := self.look()["decisions"]) < first + 2:
            if time.monotonic() > began + limit_s:
                raise AssertionError(f"{what}: still at decision {now} after {limit_s:g} s\n{self.state()}")
            time.sleep(1)
        print(f"{what}: two more decisions after {time.monotonic() - began:.1f} s", flush=True)

    def state(self) -> str:
        """Return what there is to know of its pods."""
        parts = [self.cluster.kubectl("get", "pods", "-n", self.name, "-o", "wide")]
        for pod in self.pods():
            parts.append(self.cluster.kubectl("describe", "pod", pod, "-n", self.name)[-2000:])
            parts.append(self.cluster.kubectl("logs", pod, "-n", self.name, "--tail=40"))
        return "\n".join(parts)

    def pods(self, component: str | None = None) -> list[str]:
        """Return the names of its pods, those of a component alone where one is given."""
        chosen = [] if component is None else ["-l", f"app.kubernetes.io/component={component}"]
        found = json.loads(self.cluster.kubectl("get", "pods", "-n", self.name, *chosen, "-o", "json"))
        return [each["metadata"]["name"] for each in found["items"]]

    def active(self) -> str:
        """Return the pod whose driver decides: the other says that it stands by."""
        end = time.monotonic() + 240
        while time.monotonic() < end:
            tails = {pod: self.cluster.kubectl("logs", pod, "-n", self.name, "--tail=3") for pod in self.pods()}
            running = [pod for pod, text in tails.items() if text.rstrip().rpartition("\n")[2].startswith("RUNNING")]
            if len(running) == 1:
                return running[0]
            time.sleep(2)
        raise AssertionError(f"no pod, or more than one, is active\n{self.state()}")

    def kill(self, pod: str, word: str) -> None:
        """Kill the processes of a pod whose command has a word in it."""
        for pid in self.cluster.pids(pod, self.name, word):
            os.kill(pid, signal.SIGKILL)

    def remove(self, pod: str) -> None:
        """Have a pod be gone at once, as when its node is lost."""
        self.cluster.kubectl("delete", "pod", pod, "-n", self.name, "--grace-period=0", "--force")

    def finish(self) -> None:
        """Wait until all rows are there, and hold them against what has to come out."""
        end = time.monotonic() + 600
        while len(rows := self.look()["rows"]) < self.rows and time.monotonic() < end:
            time.sleep(2)
        assert sorted(row["n"] for row in rows) == list(range(self.rows))
        by_key = [sorted((row["n"], row["seen"]) for row in rows if row["n"] % 7 == key) for key in range(7)]
        assert sorted(seen for key in by_key for _, seen in key) == sorted(
            seen for key in by_key for seen in range(1, len(key) + 1)
        )
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=false")


def test_executors_and_the_driver_are_killed_in_their_pods(cluster: EmbeddedKubernetes, tmp_path: Path) -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    job = Deployed(cluster, "pods", tmp_path, rows=50_000)
    job.start("--master", "k8s://https://kubernetes.default.svc", "-p", "2",
              "-D", "spark.executor.memory=512m", "-D", "spark.kubernetes.executor.request.cores=0.1")  # fmt: skip
    while not cluster_has_decided(job):
        time.sleep(2)
    kills = {
        "an executor's JVM": lambda: job.kill(chance.choice(job.pods("executor")), "KubernetesExecutorBackend"),
        "an executor's pod": lambda: job.remove(chance.choice(job.pods("executor"))),
        "the driver's JVM": lambda: job.kill("counted-0", "org.apache.spark.deploy.SparkSubmit"),
        "the driver": lambda: job.kill("counted-0", "poundlock run"),
        "the driver's pod": lambda: job.remove("counted-0"),
    }
    for what in chance.sample(list(kills), len(kills)):
        kills[what]()
        job.wait(what)
    job.finish()


def test_the_pod_that_stands_by_goes_on(cluster: EmbeddedKubernetes, tmp_path: Path) -> None:
    job = Deployed(cluster, "standby", tmp_path, rows=20_000)
    job.start("--standby", "-p", "2")
    while not cluster_has_decided(job) or len(job.pods()) < 2:
        time.sleep(2)
    for _ in range(2):
        active = job.active()
        (other,) = set(job.pods()) - {active}
        job.remove(active)
        job.wait(f"{active}, which was active")
        assert "Taking over from" in cluster.kubectl("logs", other, "-n", job.name)
    job.finish()


def cluster_has_decided(job: Deployed) -> bool:
    """Return whether the job has made a decision."""
    return job.look()["decisions"] > 1
