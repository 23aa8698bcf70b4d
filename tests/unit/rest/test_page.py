"""The page as it is served: whole, small, from the wheel alone, and under rules that let no other script run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from poundlock.rest import page
from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from support.rest_job import TOKEN, observed

LARGEST = 400_000
OTHERS = ("preact-htm.js", "uplot.js", "uplot.css", "dagre.js", "licenses.txt")


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(make_app(observed(tmp_path)[0], Admission.of_token(TOKEN)))


def text(name: str) -> str:
    return page.STATIC.joinpath(name).read_text(encoding="utf-8")


def own() -> list[str]:
    return [name for name in page.names() if name not in OTHERS]


def test_all_of_it_is_small_and_answered_without_the_token(client: TestClient) -> None:
    sizes = {name: len(client.get(f"/page/{name}").content) for name in page.names()}
    assert sizes.keys() >= {*OTHERS, "index.html", "app.js", "style.css"}
    assert all(sizes.values())
    assert sum(sizes.values()) < LARGEST
    assert client.get("/").text == text("index.html")
    assert client.head("/").status_code == 200
    assert client.get("/page/none.js").status_code == 404
    assert client.get("/page/..%2Fapp.py").status_code == 404
    assert client.post("/page/app.js").status_code == 401, "what is not read needs the token"
    for path in ("/pages", "/dashboard/jobs", "/page"):
        assert client.get(path).status_code == 401, path


def test_it_refers_to_nothing_but_its_own_files(client: TestClient) -> None:
    names = set(page.names())
    for name in own():
        for used in re.findall(r'(?:src|href)="/page/([^"]+)"|from "\./([^"]+)"|"/page/([^"]+)"', text(name)):
            assert "".join(used) in names, f"{name} needs {used}"
        assert not re.search(r"https?://(?!www\.w3\.org/)", text(name)), f"{name} leads elsewhere"


def test_its_rules_let_no_other_script_run_and_no_frame_have_it(client: TestClient) -> None:
    for path in ("/", "/page/app.js"):
        answer = client.get(path)
        policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
        assert (
            policy["default-src"]
            == policy["base-uri"]
            == policy["frame-ancestors"]
            == policy["form-action"]
            == "'none'"
        )
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_nothing_in_it_makes_markup_of_text() -> None:
    """What is shown is hostile: names, dead letters, logs. Preact makes text of text unless it is told otherwise."""
    for name in own():
        assert not re.search(
            r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|javascript:",
            text(name),
        ), name
    index = text("index.html")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", index), (
        "the rules refuse what stands inline"
    )


def test_licences_of_what_others_made_are_beside_it() -> None:
    licences = text("licenses.txt")
    for library in ("uPlot 1.6.32", "@dagrejs/dagre 3.1.3", "htm 3.1.1", "Preact"):
        assert library in licences
    assert licences.count("Permission is hereby granted") >= 3
    assert "Apache License" in licences
