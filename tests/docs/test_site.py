"""The site of the documentation is built without a warning, and its reference has every public name."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import poundlock
import poundlock.testing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return folder


@pytest.mark.slow
def test_every_page_of_docs_is_a_page_of_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert [page for page in pages if not (site / page).with_suffix(".html").is_file()] == []
    assert "What it costs" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    reference = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    names = [f"poundlock.{name}" for name in poundlock.__all__ if name != "__version__"]
    names += [f"poundlock.testing.{name}" for name in poundlock.testing.__all__]
    assert len(names) > 100
    assert [name for name in names if f'id="{name}"' not in reference] == []
    # What a docstring says of an argument is there, too.
    assert "a record that finds the part larger than this opens a new one" in reference


@pytest.mark.slow
def test_no_page_asks_for_anything_from_elsewhere(site: Path) -> None:
    loads = ('src="http', "src='http", '<link rel="stylesheet" href="http', "url(http")
    pages = [*site.rglob("*.html"), *(site / "assets" / "stylesheets").glob("*.css")]
    assert [page.name for page in pages if any(load in page.read_text(encoding="utf-8") for load in loads)] == []


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    """The check can fail: the same settings over a page with such a link."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[nothing](not-there.md)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = settings[: settings.index("nav:\n")].replace("hooks: [tools/site.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(settings + "nav:\n  - index.md\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "not-there.md" in done.stderr + done.stdout


def test_links_of_the_repository_become_those_of_the_site() -> None:
    moved = runpy.run_path(str(ROOT / "tools" / "site.py"))["moved_link"]
    assert moved("docs/tutorial.md", "index.md") == "tutorial.md"
    assert moved("../README.md", "tutorial.md") == "index.md"
    assert moved("../../README.md", "tasks/upgrade-without-loss.md") == "../index.md"
    assert moved("../examples/fraud.py", "process-functions.md") == "examples/fraud.md"
    assert moved("pictures/gates.svg", "concepts.md") == "pictures/gates.svg"
