"""The file sink. What runs a job is loaded when `FileSink` first asks for it here, so that writing a sink down is quick."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poundlock.connectors.files import file_values as file_values
    from poundlock.connectors.files.sink import commit_plan as commit_plan
    from poundlock.connectors.files.sink import committer as committer
    from poundlock.connectors.files.sink import description as description
    from poundlock.connectors.files.sink import inspection as inspection
    from poundlock.connectors.files.sink import overwriting as overwriting
    from poundlock.connectors.files.sink import savepoint_files as savepoint_files


_PARTS = ("file_values", "commit_plan", "committer", "description", "inspection", "overwriting", "savepoint_files")


def __getattr__(name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"poundlock.connectors.files.{'' if name == 'file_values' else 'sink.'}{name}")
