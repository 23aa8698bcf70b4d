"""Rendered units and objects against what systemd and Kubernetes themselves know, and the mistakes on the command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import string
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from poundlock.cli.main import main
from poundlock.deploy.systemd import Unit
from poundlock.deploy.yaml import documents

JOB = """
from poundlock import DatagenSource, FileSink, Job

job = Job("made")
job.from_source(DatagenSource(), name="events").sink_to(FileSink("out", row="value"), name="files")
"""
TWO = (
    JOB
    + 'other = Job("other_one", parallelism=4)\nother.from_source(DatagenSource()).sink_to(FileSink("o", row="value"))\n'
)
SCHEMA = "1.33"

# systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5): of each section what is used here or might be.
KNOWN = {
    "Unit": {"Description", "Documentation", "Wants", "After", "Requires", "StartLimitIntervalSec", "StartLimitBurst"},
    "Service": {
        *("Type", "User", "Group", "WorkingDirectory", "Environment", "EnvironmentFile", "ExecStart", "KillMode"),
        *("KillSignal", "TimeoutStopSec", "TimeoutStartSec", "Restart", "RestartSec", "RestartPreventExitStatus"),
        *(
            "SuccessExitStatus",
            "OOMPolicy",
            "NoNewPrivileges",
            "LockPersonality",
            "RestrictRealtime",
            "RestrictSUIDSGID",
        ),
        *("PrivateTmp", "ProtectSystem", "ProtectHome", "ProtectClock", "ProtectControlGroups", "ProtectHostname"),
        *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies"),
    },
    "Install": {"WantedBy"},
}


@pytest.fixture(autouse=True)
def project(own_folder: Path) -> Path:
    (own_folder / "job.py").write_text(JOB)
    (own_folder / "two.py").write_text(TWO)
    return own_folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(["deploy", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def parsed(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return a unit as systemd reads it: sections of directives, one a line."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = []
        elif line:
            name, equals, value = line.partition("=")
            assert equals, line
            sections[list(sections)[-1]].append((name, value))
    return sections


def one(sections: dict[str, list[tuple[str, str]]], name: str) -> str:
    (value,) = [value for pairs in sections.values() for key, value in pairs if key == name]
    return value


def words(text: str) -> list[str]:
    return [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(text)]


def verified(path: Path) -> str:
    """Return what systemd has to say against a unit."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stderr + done.stdout


# systemd


def test_a_unit_stops_cleanly_and_is_not_started_again_in_vain(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    sections = parsed(said(capsys, "systemd", "job.py", "--stop-timeout", "90 s", "--run-as", "etl"))
    assert {name: {key for key, _ in pairs} - KNOWN[name] for name, pairs in sections.items()} == {
        "Unit": set(),
        "Service": set(),
        "Install": set(),
    }
    expected = {
        "KillMode": "mixed",
        "KillSignal": "SIGTERM",
        "TimeoutStopSec": "90",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "2 4 5 130 143",
        "SuccessExitStatus": "130 143",
        "User": "etl",
        "WorkingDirectory": str(project),
        "WantedBy": "multi-user.target",
    }
    assert {name: one(sections, name) for name in expected} == expected
    assert words(one(sections, "ExecStart")) == [sys.executable, "-m", "poundlock", "run", str(project / "job.py")]
    environment = [value for key, value in sections["Service"] if key == "Environment"]
    assert f"POUNDLOCK_STATE_DIR={project / 'state'}" in environment
    # What would keep the JIT compiler from running, or the job from its output.
    assert not {"MemoryDenyWriteExecute", "ProtectHome"} & {key for key, _ in sections["Service"]}


def test_a_driver_that_was_succeeded_is_started_again_to_stand_by(capsys: pytest.CaptureFixture[str]) -> None:
    sections = parsed(said(capsys, "systemd", "job.py", "--standby", "-D", "checkpoint_dir=/shared/made"))
    assert one(sections, "RestartPreventExitStatus") == "2 4 130 143"
    assert words(one(sections, "ExecStart"))[-3:] == ["-D", "checkpoint_dir=/shared/made", "--standby"]


def test_a_unit_of_a_user_has_nothing_its_manager_may_not_do(capsys: pytest.CaptureFixture[str]) -> None:
    sections = parsed(said(capsys, "systemd", "job.py", "--user"))
    assert one(sections, "WantedBy") == "default.target"
    keys = {key for pairs in sections.values() for key, _ in pairs}
    assert not {key for key in keys if key.startswith(("User", "Protect", "Private", "After"))}


AWKWARD = 'a job $HOME 100% "quoted" \\ back'


def test_every_word_comes_back_as_it_was(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / AWKWARD
    folder.mkdir()
    shutil.copy(project / "two.py", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POUNDLOCK_DRIVER_MEMORY", "3g")
    (folder / "p.toml").write_text('log_level = "debug"\n')
    text = said(
        capsys, "systemd", "two.py:other", "--user", "--env", "GREETING=50% of $HOME is \"it\"", "--config", "p.toml",
        "-D", "spark.local.dir=/a b/%i", "-p", "3", "--master", "local[3]",
    )  # fmt: skip
    sections = parsed(text)
    assert words(one(sections, "ExecStart"))[3:] == [
        *("run", f"{folder / 'two.py'}:other", "-D", "spark.local.dir=/a b/%i"),
        *("--master", "local[3]", "-p", "3", "--config", str(folder / "p.toml")),
    ]
    assert one(sections, "WorkingDirectory") == str(folder).replace("%", "%%")
    environment = dict(
        shlex.split(value)[0].replace("%%", "%").split("=", 1) for k, value in sections["Service"] if k == "Environment"
    )
    assert environment["GREETING"] == '50% of $HOME is "it"'
    assert environment["POUNDLOCK_DRIVER_MEMORY"] == "3g"
    assert one(sections, "Description") == "poundlock job other_one"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_against_them(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / AWKWARD
    folder.mkdir()
    shutil.copy(project / "job.py", folder)
    monkeypatch.chdir(folder)
    for kind in (["--user"], ["--run-as", "root"]):
        said(capsys, "systemd", "job.py", *kind, "--env", "A=b c %d", "-o", "poundlock-made.service")
        assert verified(folder / "poundlock-made.service") == ""
    text = (folder / "poundlock-made.service").read_text()
    (folder / "wrong.service").write_text(text.replace("KillMode=mixed", "KillMood=mixed"))
    assert "KillMood" in verified(folder / "wrong.service"), "it does look"


def test_a_unit_is_written_where_it_is_wanted(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "units").mkdir()
    out = said(capsys, "systemd", "job.py", "-o", "units")
    assert out.splitlines()[0] == "wrote units/poundlock-made.service"
    written = (project / "units" / "poundlock-made.service").read_text()
    assert written == said(capsys, "systemd", "job.py")
    data = json.loads(said(capsys, "systemd", "job.py", "--name", "etl", "--json"))
    assert data["name"] == "etl.service"
    assert Unit(name="", sections=data["sections"]).text == written


# Kubernetes


def objects(text: str) -> dict[str, dict[str, Any]]:
    found = list(yaml.safe_load_all(text))
    return {each["kind"]: each for each in found}


ALL_OPTIONS = (
    *("--name", "etl", "-n", "pipelines", "--storage", "1.5Ti", "--storage-class", "fast", "--cpu", "4"),
    *("--rest-port", "9000", "--env", "TZ=UTC", "--env-secret", "passwords", "--stop-timeout", "10 min"),
    *("-D", "checkpoint_interval=5 s", "-D", "driver_memory=4g"),
)


@pytest.mark.parametrize("options", [(), ALL_OPTIONS, ("--token-secret", "mine", "-p", "3"), ("--tls-secret", "pair")])
def test_objects_fit_the_published_schema(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    found = objects(said(capsys, "kubernetes", "job.py", "--image", "registry.example:5000/jobs/made:1.0", *options))
    own_token = "--token-secret" in options
    assert list(found) == [*([] if own_token else ["Secret"]), "ConfigMap", "Service", "StatefulSet"]
    for each in found.values():
        kubernetes_validate.validate(each, SCHEMA, strict=True)


def test_rest_has_the_certificate_of_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    pod = objects(said(capsys, "kubernetes", "job.py", "--image", "made", "--tls-secret", "pair"))["StatefulSet"][
        "spec"
    ]
    (container,) = pod["template"]["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert "POUNDLOCK_REST_INSECURE" not in environment
    assert environment["POUNDLOCK_SECURITY_SSL_REST_ENABLED"] == "true"
    assert environment["POUNDLOCK_SECURITY_SSL_REST_CERTIFICATE_FILE"] == f"{mounts['tls']}/tls.crt"
    assert environment["POUNDLOCK_SECURITY_SSL_REST_KEY_FILE"] == f"{mounts['tls']}/tls.key"


def test_the_schema_finds_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    whole = said(capsys, "kubernetes", "job.py", "--image", "made")
    for wrong in (
        whole.replace("terminationGracePeriodSeconds: 300", "terminationGracePeriodSeconds: soon"),
        whole.replace("volumeMounts:", "volumeMount:"),
        whole.replace("containerPort: 8081", 'containerPort: "8081"'),
    ):
        assert wrong != whole
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(objects(wrong)["StatefulSet"], SCHEMA, strict=True)


def test_two_drivers_never_run_at_once_and_a_stop_is_clean(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "poundlock.toml").write_text('log_level = "debug"\n')
    found = objects(said(capsys, "kubernetes", "job.py", "--image", "made:1", *ALL_OPTIONS))
    assert {each["metadata"]["namespace"] for each in found.values()} == {"pipelines"}
    assert found["ConfigMap"]["data"] == {"job.py": JOB, "poundlock.toml": 'log_level = "debug"\n'}
    spec = found["StatefulSet"]["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (1, found["Service"]["metadata"]["name"])
    assert found["Service"]["spec"]["clusterIP"] == "None"
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 600
    (container,) = pod["containers"]
    assert [*container["command"], *container["args"]] == [
        *("python", "-m", "poundlock", "run", "/etc/poundlock/job/job.py"),
        *("-D", "checkpoint_interval=5 s", "-D", "driver_memory=4g", "-p", "4"),
    ]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["POUNDLOCK_CONFIG"] == "/etc/poundlock/job/poundlock.toml"
    assert environment["TZ"] == "UTC"
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "5120Mi"}, "limits": {"memory": "5120Mi"}}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert set(mounts) == claims | {each["name"] for each in pod["volumes"]}
    assert environment["POUNDLOCK_STATE_DIR"] == mounts["state"] == container["workingDir"]
    assert environment["POUNDLOCK_REST_TOKEN_FILE"].startswith(mounts["token"])
    assert environment["POUNDLOCK_REST_INSECURE"] == "true", (
        "it listens on the pod's address, and says that it has no TLS"
    )
    assert (
        spec["selector"]["matchLabels"]
        == spec["template"]["metadata"]["labels"]
        == found["Service"]["spec"]["selector"]
    )
    # The job's own parallelism wins over the cores.
    (container,) = objects(said(capsys, "kubernetes", "two.py:other", "--name", "o", "--image", "made", "--cpu", "2"))[
        "StatefulSet"
    ]["spec"]["template"]["spec"]["containers"]
    assert [container["command"][-1], *container["args"]] == ["/etc/poundlock/job/job.py:other"]


def test_a_second_pod_stands_by(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--image", "made:1", "--standby", "-D", "checkpoint_dir=s3://bucket/made")
    found = objects(said(capsys, "kubernetes", "job.py", *arguments))
    spec = found["StatefulSet"]["spec"]
    kubernetes_validate.validate(found["StatefulSet"], SCHEMA, strict=True)
    assert (spec["replicas"], spec["podManagementPolicy"]) == (2, "Parallel")
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"][-1] == "--standby"


def test_executors_get_pods_of_their_own(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    master = ("--master", "k8s://https://kubernetes.default.svc", "-p", "4", "-n", "pipelines", "--env-secret", "keys")
    found = objects(said(capsys, "kubernetes", "job.py", "--image", "made:1", *master))
    assert set(found) == {
        "Secret", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service", "StatefulSet",
    }  # fmt: skip
    for each in found.values():
        kubernetes_validate.validate(each, SCHEMA, strict=True)
    pod = yaml.safe_load(found["ConfigMap"]["data"]["executor.yaml"])
    kubernetes_validate.validate(pod, SCHEMA, strict=True)
    assert pod["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]

    driver = found["StatefulSet"]["spec"]["template"]
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= driver["metadata"]["labels"].items()
    assert not selector.items() <= pod["metadata"]["labels"].items()  # the driver's name never stands for an executor
    assert driver["spec"]["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    binding = found["RoleBinding"]
    assert binding["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "made", "namespace": "pipelines"}]
    (container,) = driver["spec"]["containers"]
    conf = dict(word.split("=", 1) for word in container["args"] if word.startswith("spark."))
    assert conf["spark.driver.host"] == "made.pipelines.svc"
    assert conf["spark.kubernetes.driver.pod.name"] == "made-0"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {conf["spark.driver.port"], conf["spark.driver.blockManager.port"]} <= {str(p) for p in ports.values()}
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} == set(ports)
    assert container["args"][:4] == ["--master", "k8s://https://kubernetes.default.svc", "-p", "4"]


def test_an_image_has_what_spark_starts_an_executor_by(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    text = said(capsys, "image", "poundlock[kafka]", "-o", "Dockerfile")
    assert "docker build -t IMAGE -f Dockerfile ." in text
    recipe = (project / "Dockerfile").read_text()
    assert f'pip install --no-cache-dir "pyspark=={metadata.version("pyspark")}" "poundlock[kafka]"' in recipe
    assert 'ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "poundlock.deploy.entrypoint"]' in recipe
    assert "SPARK_HOME=/opt/spark" in recipe


@pytest.mark.parametrize(
    ("arguments", "installed"),
    [
        (("--spark", "4.1.0"), '"pyspark==4.1.0" "poundlock[kafka,rest]"'),
        (("--spark", "newest"), '"poundlock[kafka,rest]"'),
        (("poundlock", "PySpark[connect] >=4,<5"), '"poundlock" "PySpark[connect] >=4,<5"'),
        (("pyspark-tools",), f'"pyspark=={metadata.version("pyspark")}" "pyspark-tools"'),
    ],
)
def test_an_image_has_the_spark_of_this_environment_unless_another_is_named(
    arguments: Sequence[str], installed: str, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    assert f"pip install --no-cache-dir {installed}\n" in said(capsys, "image", *arguments)


EXECUTOR = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dtwo=a b\n=",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@made:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "made-exec-3",
}


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "poundlock.deploy.entrypoint", *arguments]
    around = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "JAVA_HOME"))}
    return subprocess.run(command, capture_output=True, text=True, env={**around, **environment})


def test_an_image_becomes_the_command_it_is_given() -> None:
    assert started("echo", "a  b").stdout == "a  b\n"
    nothing = started("no-such-program")
    assert nothing.returncode == 127
    assert nothing.stderr.startswith("no-such-program: ")
    assert nothing.stderr.count("\n") == 2


def test_an_image_becomes_the_executor_that_spark_asks_for(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    java.chmod(0o755)
    ran = started("executor", **EXECUTOR, JAVA_HOME=str(tmp_path))
    assert json.loads(ran.stdout) == [
        *("-Dtwo=a b\n=", "-Dlast=1", "-Xms1024m", "-Xmx1024m", "-cp", "/opt/spark/conf:/opt/spark/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@made:7078", "--executor-id", "3", "--cores", "2"),
        *("--app-id", "spark-1", "--hostname", "10.0.0.3", "--resourceProfileId", "0", "--podName", "made-exec-3"),
    ]
    lacking = {name: value for name, value in EXECUTOR.items() if name != "SPARK_DRIVER_URL"}
    refused = started("executor", **lacking)
    assert refused.returncode == 127
    assert refused.stderr.splitlines()[0] == "an executor was asked for, and SPARK_DRIVER_URL is not set"


def test_each_rendering_has_a_token_of_its_own_in_a_file_of_the_users(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    tokens = set()
    for name in ("a.yaml", "b.yaml"):
        said(capsys, "kubernetes", "job.py", "--image", "made", "-o", name)
        assert stat.S_IMODE((project / name).stat().st_mode) == 0o600
        tokens.add(objects((project / name).read_text())["Secret"]["stringData"]["token"])
    assert len(tokens) == 2
    assert min(map(len, tokens)) >= 40


def test_json_is_a_list_that_kubectl_takes(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    value = json.loads(said(capsys, "kubernetes", "job.py", "--image", "made", "--json"))
    kubernetes_validate.validate(value["items"][-1], SCHEMA, strict=True)
    assert value["kind"] == "List"
    assert (
        json.loads(said(capsys, "kubernetes", "job.py", "--image", "made", "--json", "-o", "."))["path"] == "made.json"
    )
    assert json.loads((project / "made.json").read_text())["items"][1] == value["items"][1]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "what", "next"),
    [
        (["image", "--spark", "soon"], "--spark soon is no version of Spark", "--spark 4.2.1, or newest"),
        (["image", "--spark", "3.4.1"], "poundlock runs on Spark 3.5 and on Spark 4", "--spark 4.2.1"),
        (["image", "--spark", "4.1.0", "pyspark==4.2.0"], "both say which Spark", "leave one of them out"),
        (["kubernetes", "job.py"], "Missing option '--image'", "poundlock deploy kubernetes --help"),
        (["kubernetes", "jobs.py", "--image", "a"], "there is no file jobs.py", "did you mean job.py?"),
        (["systemd", "jobs.py"], "there is no file jobs.py", "did you mean job.py?"),
        (["systemd", "two.py"], "two.py defines 2 jobs: job, other", "name one: two.py:job"),
        (
            ["kubernetes", "two.py:other", "--image", "a"],
            "'other_one' is no name for Kubernetes: lower-case letters, digits and -, at most 52, a letter first",
            "give one: --name other-one",
        ),
        (
            ["kubernetes", "job.py", "--image", "a", "--name", "A" * 60],
            "is no name for",
            f"give one: --name {'a' * 52}",
        ),
        (["kubernetes", "job.py", "--image", "a", "--name", "1-a"], "'1-a' is no name for", "give one: --name a"),
        (["kubernetes", "job.py", "--image", "a", "-n", "a.b"], "'a.b' is no name for", "give one: --namespace a-b"),
        (["kubernetes", "job.py", "--image", "Made:1"], "'Made:1' is no name of an image", "in lower case"),
        (["kubernetes", "job.py", "--image", "a b"], "'a b' is no name of an image", "registry/name:tag"),
        (["kubernetes", "job.py", "--image", "a", "--storage", "10 GB"], "--storage 10 GB is no amount", "10Gi"),
        (["kubernetes", "job.py", "--image", "a", "--stop-timeout", "0 s"], "--stop-timeout 0 s is below", '"5 min"'),
        (["kubernetes", "job.py", "--image", "a", "--env", "A"], "--env A is not KEY=VALUE", "write --env KEY=VALUE"),
        (["kubernetes", "job.py", "--image", "a", "--env", "DB_PASSWORD=x"], "looks like a secret", "--env-secret"),
        (["systemd", "job.py", "--env", "DB_PASSWORD=x"], "looks like a secret", "--env-file"),
        (["systemd", "job.py", "-D", "spark.ssl.keyPassword=x"], "spark.ssl.keyPassword is a secret", "--env-file"),
        (["systemd", "job.py", "--name", "a/b"], "'a/b' is no name of a systemd unit", "--name NAME"),
        (["systemd", "job.py", "--user", "--run-as", "etl"], "--run-as is for system units", "leave one of them out"),
        (["systemd", "job.py", "--env-file", "e"], "--env-file e is not absolute", "write --env-file /"),
        (["systemd", "job.py", "-o", "no/such/folder.service"], "cannot be written", "give -o a place"),
        (
            ["systemd", "job.py", "--standby"],
            "--standby: job made has no checkpoint folder of its own",
            "name one that",
        ),
        (
            ["kubernetes", "job.py", "--image", "a", "--standby", "-D", "checkpoint_dir=/var/lib/made"],
            "--standby: the checkpoint folder /var/lib/made is on the volume of one pod",
            "-D checkpoint_dir=s3://",
        ),
        (
            ["kubernetes", "job.py", "--image", "a", "--standby", "--master", "k8s://https://a"],
            "executors in pods of their own know one driver by one name",
            "leave --standby out",
        ),
        (["systemd", "job.py", "-D", "no_such=1"], "there is no setting 'no_such'", "use one of"),
    ],
)
def test_a_mistake_is_told_in_two_lines_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], project: Path, arguments: list[str], what: str, next: str
) -> None:
    before = sorted(project.rglob("*"))
    more = [] if "-o" in arguments else ["-o", "written"]
    assert main(["deploy", *arguments, *more]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert what in first
    assert next in second
    assert [path for path in sorted(project.rglob("*")) if "__pycache__" not in path.parts] == before


def test_a_file_that_is_too_large_is_refused(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "job.py").write_text(JOB + "#" * (1 << 20))
    assert main(["deploy", "kubernetes", "job.py", "--image", "a"]) == 2
    assert "larger than the 1 MiB a ConfigMap holds" in capsys.readouterr().err


# YAML

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(string.printable, max_size=30)
values = st.recursive(
    texts | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, values.filter(lambda value: not isinstance(value, list)) | st.lists(texts), max_size=5))
def test_yaml_says_what_it_was_given(value: dict[str, Any]) -> None:
    assert yaml.safe_load(documents([value])) == value


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "No", "null", "1e3", "0o17", "1_000", "12:30:45", "2020-01-01", "~", "a: b", "- a", "#", "a #b", ""),
        *(" a", "a\n", "a\n\n", "a\nb", "\n", " a\nb", "\n a", "a\n\tb\n", "a \n b \n", "a\r\nb", "\u2028\n"),
        *("---\n", "a\n---\nb\n"),
    ],
)
def test_yaml_keeps_a_text_a_text(text: str) -> None:
    assert yaml.safe_load(documents([{"key": text, "more": [text]}])) == {"key": text, "more": [text]}
