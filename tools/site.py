"""Hooks of the site: pages that stand outside docs/ become part of it, and the API reference is made from the public names.

README.md is the site's first page. A program that a page links to is shown as a page of its own. The reference has every name of
`poundlock/__init__.pyi` and `poundlock/testing/__init__.pyi`, in the order of these files, a page for each part of the package.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "examples/upgrade.md": "examples/upgrade.md",
}
# The first words of a module's path that decide a name's page, and the page's title; the first that fits counts.
PARTS = {
    "poundlock.testing": "Testing",
    "poundlock.connectors.files": "Files",
    "poundlock.connectors.kafka": "Kafka",
    "poundlock.connectors": "Other connectors",
    "poundlock.stream.windows": "Windows",
    "poundlock.stream.watermarks": "Watermarks",
    "poundlock.stream.functions": "Functions and state",
    "poundlock.sql": "SQL functions",
    "poundlock.errors": "Errors",
    "poundlock": "Jobs and streams",
}
_IMPORT = re.compile(r"^from (\S+) import (\([^)]+\)|[^\n]+)$", re.MULTILINE)
_NAME = re.compile(r"\b(\w+) as \1\b")
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def public_names() -> dict[str, tuple[str, str]]:
    """Return every public name by its import path, such as "poundlock.Job", with the module and the name there."""
    names = {}
    for package in ("poundlock", "poundlock.testing"):
        stub = (ROOT / "src" / package.replace(".", "/") / "__init__.pyi").read_text()
        for module, imported in _IMPORT.findall(stub):
            for name in _NAME.findall(imported):
                names[f"{package}.{name}"] = (module, name)
    return names


def part_of(path: str, module: str) -> str:
    """Return the title of the page that has the name of this import path, which is defined in `module`."""
    of = path.rpartition(".")[0] if path.startswith("poundlock.testing.") else module
    return next(title for start, title in PARTS.items() if f"{of}.".startswith(f"{start}."))


def reference_pages() -> dict[str, str]:
    """Return the pages of the API reference by their place in the site."""
    listed: dict[str, list[str]] = {title: [] for title in PARTS.values()}
    for path, (module, name) in public_names().items():
        listed[part_of(path, module)].append(
            f"## {name} {{ #{path} }}\n\n`from {path.rpartition('.')[0]} import {name}`\n\n"
            f"::: {module}.{name}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n      heading_level: 3\n"
        )
    pages = {}
    for title, entries in listed.items():
        pages[f"api/{title.lower().replace(' ', '-')}.md"] = "\n".join([f"# {title}\n", *entries])
    return pages


def example_page(path: Path) -> str:
    """Return the page that shows a program."""
    return f"# {path.name}\n\n```python\n{path.read_text()}```\n"


def on_config(config: Any) -> Any:
    """Add the reference and the programs to the navigation."""
    examples = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    reference = [{title: f"api/{title.lower().replace(' ', '-')}.md"} for title in sorted(PARTS.values())]
    config.nav.append({"API": reference})
    config.nav.append({"Examples": [{name: f"examples/{name[:-3]}.md"} for name in examples]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside docs/, the programs, and the reference."""
    pages = {place: (ROOT / source).read_text() for source, place in OUTSIDE.items()}
    pages |= {f"examples/{path.stem}.md": example_page(path) for path in (ROOT / "examples").glob("*.py")}
    pages |= reference_pages()
    pages["license.md"] = f"# License\n\n```text\n{pages['license.md']}```\n"
    for place, content in pages.items():
        files.append(File.generated(config, place, content=content))
    return files


def moved_link(link: str, page: str) -> str:
    """Return a link of `page`, a place in the site, as it is in the site; the link is one of the files in the repository."""
    source = next((source for source, place in OUTSIDE.items() if place == page), f"docs/{page}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if target in OUTSIDE:
        place = OUTSIDE[target]
    elif target.startswith("docs/"):
        place = target.removeprefix("docs/")
    elif target.startswith("examples/") and target.endswith(".py"):
        place = f"{target[:-3]}.md"
    else:
        return link
    return posixpath.relpath(place, posixpath.dirname(page) or ".")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text with the links of the repository made those of the site."""
    place = page.file.src_uri
    if place.startswith(("api/", "examples/")) and place not in OUTSIDE.values():
        return markdown
    return _LINK.sub(lambda found: f"]({moved_link(found[1], place)}", markdown)
