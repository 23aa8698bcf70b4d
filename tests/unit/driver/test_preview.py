"""What a preview is not of is refused in words, before anything starts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from poundlock import DatagenSource, Job
from poundlock.errors import DefinitionError


@pytest.mark.parametrize("n", ["x", None, 2.5, 0, -1, True])
def test_a_number_of_rows_that_is_none(n: Any) -> None:
    stream = Job("looked-at").from_source(DatagenSource(rate=1), name="in")
    with pytest.raises(DefinitionError) as caught:
        stream.preview(n)
    assert str(caught.value) == f"preview({n!r}) shows nothing\nNext: ask for one row or more: stream.preview(5)"


def test_a_preview_of_a_job_instead_of_a_stream() -> None:
    wrong: Any = 5
    with pytest.raises(DefinitionError) as caught:
        Job("looked-at").preview(wrong)
    assert str(caught.value) == "preview is of a stream, and got 5\nNext: write stream.preview(5)"


def test_too_few_rows_because_the_time_was_up_come_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: Any, *, stop: Any, **options: Any) -> None:
        while not stop.stopping:
            time.sleep(0.001)

    monkeypatch.setattr("poundlock.driver.interactive.preview.run", run)
    stream = Job("looked-at").from_source(DatagenSource(rate=1), name="in")
    with pytest.warns(
        UserWarning, match=r"preview: 0 of 5 rows came within 1 ms, the start of Spark included; .*5 min"
    ) as caught:
        assert stream.preview(5, timeout="1 ms") == []
    assert caught[0].filename == __file__
