"""The names of manifests: a text with the version in it."""

from __future__ import annotations

import re

VERSION = "{version}"
"""What stands for the version in the name of a manifest."""


def name_of(manifest: str, version: int) -> str:
    """Return the name of a version."""
    return manifest.replace(VERSION, str(version))


def pattern_of(manifest: str) -> re.Pattern[str]:
    before, _, behind = manifest.partition(VERSION)
    return re.compile(rf"{re.escape(before)}([1-9][0-9]{{0,8}}){re.escape(behind)}")


class ManifestNames:
    """The names that manifests may have, to be asked whether one is among them."""

    def __init__(self, manifest: str) -> None:
        self._pattern = pattern_of(manifest)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._pattern.fullmatch(name) is not None
