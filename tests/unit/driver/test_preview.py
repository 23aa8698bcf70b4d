"""What a preview is not of is refused in words, before anything starts."""

from __future__ import annotations

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
