"""What a streaming query gets for its checkpoint on a store: the address, never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poundlock.spark.launch.jars import JAR_SETS
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session_conf import SessionSpec, executor_settings, needs_of
from poundlock.storage import LocalStorage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import S3Address

HERE = S3Address("http://127.0.0.1:9000", "eu-west-1", path_style=True)


def test_a_local_checkpoint_needs_nothing(tmp_path: Path) -> None:
    needs = needs_of(LocalStorage(str(tmp_path)))
    assert (needs.jar_sets, needs.settings) == ((), {})


def test_a_checkpoint_on_s3_needs_hadoops_client_and_the_address() -> None:
    storage = S3Storage("events", "jobs/a", HERE)
    needs = needs_of(storage)
    assert needs.jar_sets == ("s3a",)
    prefix = "spark.hadoop.fs.s3a."
    assert {name.removeprefix(prefix): value for name, value in needs.settings.items()} == {
        "endpoint": "http://127.0.0.1:9000",
        "endpoint.region": "eu-west-1",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    }
    amazon = needs_of(S3Storage("events", "", S3Address(region="eu-west-1"))).settings
    assert f"{prefix}endpoint" not in amazon
    assert amazon[f"{prefix}endpoint.region"] == "eu-west-1"


def test_no_secret_is_in_sparks_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "never-shown")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    told = executor_settings()
    assert told["spark.executorEnv.AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    spec = SessionSpec(
        name="a",
        master=Master.of("local[1]"),
        jvm_log=tmp_path / "log",
        store={**told, **needs_of(S3Storage("events", "a", HERE)).settings},
        user={"spark.hadoop.fs.s3a.path.style.access": "false"},
    )
    settings = spec.settings()
    assert "never-shown" not in json.dumps(settings)
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "false", "the user's setting wins"


def test_the_client_is_of_the_hadoop_that_pyspark_comes_with() -> None:
    from poundlock.spark.launch.jars import pyspark_jars

    [pin] = [pin for pin in JAR_SETS["s3a"].pins if pin.artifact == "hadoop-aws"]
    [api] = pyspark_jars().glob("hadoop-client-api-*.jar")
    assert pin.version == api.stem.removeprefix("hadoop-client-api-")
