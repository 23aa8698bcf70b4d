"""Where MinIO's program comes from, with a `go` that only pretends to build; the server itself is for tests/services."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.errors import DefinitionError
from poundlock.testing.minio import MINIO, minio_program


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin", "POUNDLOCK_CACHE_DIR": str(tmp_path / "cache")}


def test_without_go_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no Go on PATH") as caught:
        minio_program(environment={"PATH": str(tmp_path), "POUNDLOCK_CACHE_DIR": str(tmp_path)})
    assert "install Go" in caught.value.next


def test_a_program_on_the_path_is_taken(tmp_path: Path, environment: dict[str, str]) -> None:
    own = script(tmp_path / "bin", "minio", "")
    assert minio_program(environment=environment) == own


def test_it_is_built_once(tmp_path: Path, environment: dict[str, str]) -> None:
    script(
        tmp_path / "bin",
        "go",
        'echo "$@ $CGO_ENABLED" >> "$GOBIN/../calls"; echo x > "$GOBIN/minio"; chmod +x "$GOBIN/minio"',
    )
    told: list[str] = []
    program = minio_program(environment=environment, progress=told.append)
    assert program == minio_program(environment=environment, progress=told.append)
    assert program == tmp_path / "cache/minio" / MINIO / "minio"
    assert (tmp_path / "cache/minio/calls").read_text() == f"install github.com/minio/minio@{MINIO} 0\n"
    assert len(told) == 1
    assert sorted(path.name for path in (tmp_path / "cache/minio").iterdir()) == [".lock", "calls", MINIO]


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    script(tmp_path / "bin", "go", 'echo "go: downloading a" >&2; echo "no network" >&2; exit 1')
    with pytest.raises(DefinitionError, match=r"could not be built by .*: no network"):
        minio_program(environment=environment)
    assert [path.name for path in (tmp_path / "cache/minio").iterdir()] == [".lock"]
