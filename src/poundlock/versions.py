"""The versions of this package and of what it stands on. Reads package metadata only; nothing is imported."""

from __future__ import annotations

from importlib import metadata


def version_of(package: str) -> str:
    """Return the version of a package, "not installed" if it is none; ours is known without an installation too."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package == "poundlock":
            from poundlock import __version__

            return __version__
        return "not installed"
