"""The harness itself: which keys it takes, and what it does not drive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from poundlock import DefinitionError, FileSource, Job, KeyedProcessFunction, ProcessFunction, Side
from poundlock.errors import PoundlockError
from poundlock.testing import ProcessHarness


class Keys(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield {"k": json.dumps(ctx.get_current_key())}


class Copies(ProcessFunction):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.append(value)
        yield list(self.seen)


def source() -> Any:
    return Job("a").from_source(FileSource("/in"))


@pytest.mark.parametrize(
    ("keys", "options", "key"),
    [
        (["user"], {}, "a"),
        (["user", "n"], {}, ["a", 1]),
        (["lower(user)"], {"key": lambda value: value["user"].upper()}, "A"),
        (["user"], {"key": "n"}, 1),
    ],
)
def test_a_stream_knows_its_keys_where_they_are_columns(keys: list[str], options: Any, key: Any) -> None:
    h = ProcessHarness(source().key_by(*keys).process(Keys(), schema="k string"), **options)
    assert h.process_element({"user": "a", "n": 1})[0].value == {"k": json.dumps(key)}


class Gives(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("a", "process-0 emitted str, not a dict"),
        ({"n": 1, "m": 2}, "process-0 emitted the undeclared column 'm'"),
        ({"n": "many"}, "process-0 emitted a record that does not fit: column 'n': Could not convert 'many'"),
        (Side("big", {"n": 1}), "process-0 emitted the undeclared column 'n'"),
        (Side("big", {"words": 1}), "process-0 emitted a record that does not fit: column 'words': "),
        (Side("huge", {}), "'huge'"),
    ],
)
def test_what_a_stream_emits_is_held_against_what_it_declares(given: Any, says: str) -> None:
    h = ProcessHarness(source().process(Gives(), schema="n int", side_outputs={"big": "words array<string>"}))
    assert [row.value for row in h.process_element([{"n": 1}, {}, {"n": None}, Side("big", {"words": ["a"]})])] == [
        {"n": 1}, {}, {"n": None},
    ]  # fmt: skip
    with pytest.raises(PoundlockError, match=re.escape(says)):
        h.process_element([given])
    assert len(h.output) == 3


def test_other_keys_must_be_given() -> None:
    with pytest.raises(DefinitionError, match="does not know the key of an element"):
        ProcessHarness(source().key_by("lower(user)").process(Keys(), schema="k string"))
    with pytest.raises(DefinitionError, match="does not know the key of an element"):
        ProcessHarness(Keys())


def test_what_it_does_not_drive() -> None:
    with pytest.raises(DefinitionError, match="source-0 is no process function, rolling aggregate or join"):
        ProcessHarness(source())
    with pytest.raises(DefinitionError, match="is no process function"):
        ProcessHarness(print)  # type: ignore[arg-type]


def test_instances_have_objects_of_their_own_and_a_restore_begins_with_new_ones() -> None:
    function = Copies()
    h = ProcessHarness(function, instances=2)
    assert [h.process_element(n)[0].value for n in range(4)] == [[0], [1], [0, 2], [1, 3]]
    h.restore(h.snapshot())
    assert h.process_element(9)[0].value == [9]
    assert function.seen == []
