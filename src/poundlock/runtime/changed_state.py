"""What Spark says when state is made of something else than in the checkpoint, as one error that names operators.

Only Spark knows what the state of a DataFrame function is made of, and it compares when the query runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from poundlock.errors import DefinitionError

__all__ = ["StateChangedError", "changed_state"]

_SCHEMAS = re.compile(
    r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE.*?Existing \w+=(?P<was>\S.*?) and new \w+=(?P<now>\S.*?)\.\s*(?:\n|If you)",
    re.DOTALL,
)
_OPERATORS = re.compile(
    r"OPERATOR_NOT_MATCH_IN_STATE_METADATA.*?in the metadata: \[(?P<was>.*?)\];.*?in current batch: \[(?P<now>.*?)\]",
    re.DOTALL,
)
_FIELD = re.compile(r"StructField\((\w+),(\w+?)(?:Type)?[,(]")
_NAME = re.compile(r"OperatorName: (\w+)")


class StateChangedError(DefinitionError):
    """The job's state is made of something else than in the checkpoint."""

    def of(self, operators: Sequence[str]) -> StateChangedError:
        """Return the error with the ids of the operators it may be of."""
        if not operators:
            return self
        whose = operators[0] if len(operators) == 1 else f"one of {', '.join(operators)}"
        return StateChangedError(self.what.replace("the job", whose, 1), next=self.next)


def changed_state(text: str) -> StateChangedError | None:
    """Return the error behind a text of Spark's, None if it says something else."""
    for pattern, part in ((_SCHEMAS, _FIELD), (_OPERATORS, _NAME)):
        found = pattern.search(text)
        if found:
            was, now = (_parts(part, found[side]) for side in ("was", "now"))
            return StateChangedError(
                f"the state of the job is made of other parts than in the checkpoint: it was {was} and is {now}",
                next="write the operator as it was and go on from the checkpoint, or begin without its state: "
                "poundlock savepoint edit PATH --drop-operator ID",
            )
    return None


def _parts(pattern: re.Pattern[str], text: str) -> str:
    found = (" ".join(part) if isinstance(part, tuple) else part for part in pattern.findall(text))
    return ", ".join(found) or text.strip() or "nothing"
