"""What is hidden, and what is not."""

from __future__ import annotations

import pytest

from poundlock.redaction import HIDDEN, is_secret, redact, redact_text


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("ssl.key.password", True),
        ("sasl.jaas.config", True),
        ("kafka.sasl.oauthbearer.client.secret", True),
        ("fs.s3a.access.key", True),
        ("API_KEY", True),
        ("basic.auth.user.info", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("ssl.truststore.location", False),
        ("key.deserializer", False),
        ("bootstrap.servers", False),
        ("dead_letters", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=abc next", f"password={HIDDEN} next"),
        ('{"ssl.key.password": "a b"}', f'{{"ssl.key.password": {HIDDEN}}}'),
        (
            "sasl.jaas.config=org.X required username='a' password='b'; and more",
            f"sasl.jaas.config={HIDDEN} and more",
        ),
        ("kafka://user:pw@host:9092/t", f"kafka://user:{HIDDEN}@host:9092/t"),
        ("topic t, partition 0: offset 3", "topic t, partition 0: offset 3"),
        ("http://host:9092/a@b", "http://host:9092/a@b"),
    ],
)
def test_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_known_values_are_hidden_wherever_they_stand_the_longest_first() -> None:
    assert redact_text("xhunter22y hunter2", ["hunter2", "hunter22"]) == f"x{HIDDEN}y {HIDDEN}"
    assert redact_text("a b c", ["a"]) == "a b c"


def test_nested_data() -> None:
    data = {"conf": {"token": "abcd", "n": 1, "none.password": None}, "list": ["secret=abcd", 2]}
    assert redact(data) == {
        "conf": {"token": HIDDEN, "n": 1, "none.password": None},
        "list": [f"secret={HIDDEN}", 2],
    }
    assert data["conf"]["token"] == "abcd"  # type: ignore[index]


def test_long_text_takes_no_quadratic_time() -> None:
    text = ("x" * 1_000 + ".") * 2_000 + " password=abcd"
    assert redact_text(text).endswith(f"password={HIDDEN}")
