"""What MySqlSource refuses before it asks a server, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from poundlock import DefinitionError, MySqlSource
from poundlock.connectors.base import replay_of
from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.connectors.mysql.source.positions import LogPlace, MySqlPosition

DSN = "mysql://etl:secret@db.example:3307/shop"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"dsn": "postgresql://h/db"}, "no address of a server"),
        ({"dsn": "mysql://h/db?tls=1"}, "an option 'tls'"),
        ({"dsn": "mysql://h", "tables": "orders"}, "in which database table 'orders'"),
        ({"tables": []}, "nothing to read"),
        ({"tables": ["orders", "shop.orders"]}, "a table twice"),
        ({"start": "now"}, "start='now' is no place"),
        ({"start": "latest", "chunk_size": 7}, "chunk_size=7 has no effect"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"on_schema_change": "follow"}, "on_schema_change='follow' is not known"),
        ({"server_id": "5400"}, "has 1 numbers, and 18 readers"),
        ({"server_id": "x"}, "is no range of numbers"),
        ({"max_log_per_checkpoint": 0}, "a limit is zero"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], what: str) -> None:
    known: dict[str, Any] = {"dsn": DSN, "tables": "orders", **given}
    with pytest.raises(DefinitionError, match=what):
        MySqlSource(known.pop("dsn"), **known)


def test_it_says_what_it_is_and_no_password() -> None:
    source = MySqlSource(DSN, tables=["orders", "other.items"], server_id="5400-5499")
    assert source.names == ("shop.orders", "other.items")
    assert "secret" not in repr(source) + source.place
    assert source.login.parameters()["password"] == "secret"
    assert pickle.loads(pickle.dumps(source)) == source
    assert replay_of(source).kind == "exact"
    assert (source.bounded, MySqlSource(DSN, tables="orders", start="snapshot").bounded) == (False, True)


def test_positions_travel_as_json_and_are_described() -> None:
    source = MySqlSource(DSN, tables="orders")
    at = MySqlPosition(
        source.names, 7, LogPlace("bin.000009", 4, "0-7-1"), {"shop.orders": Frontier("50", False, ("25",))}
    )
    assert MySqlPosition.from_json(at.to_json(), source.names) == at
    assert source.describe(at.to_json()) == "shop.orders: changes up to bin.000009:4; shop.orders below 50"
    assert "up to nothing" in source.describe(MySqlPosition(source.names).to_json())
    with pytest.raises(DefinitionError, match="is no position"):
        MySqlPosition.from_json({"lsn": "0/1"}, source.names)


def test_files_of_a_log_are_in_order_when_their_number_grows_a_digit() -> None:
    assert LogPlace("bin.999999", 9).order < LogPlace("bin.1000000", 4).order
