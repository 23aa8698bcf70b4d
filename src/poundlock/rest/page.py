"""The page: static files of the wheel, served without the token, for there is nothing of a job in them.

They bring their own rules: no script and no style but those of these files, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter, Response

from poundlock.rest.answers import refusal

router = APIRouter()
STATIC = files("poundlock.rest").joinpath("static")
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def names() -> list[str]:
    """Return the names of the page's files."""
    return sorted(each.name for each in STATIC.iterdir() if each.name.rpartition(".")[2] in _TYPES)


def is_public(method: str, path: str) -> bool:
    """Return whether a request is for the page itself, which needs no token."""
    return method in ("GET", "HEAD") and (path == "/" or path.startswith("/page/"))


def _file(name: str) -> Response:
    if name not in names():
        raise refusal(404, "the page has no such file", "the page is at /")
    data = STATIC.joinpath(name).read_bytes()
    return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers=dict(HEADERS))


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
def index() -> Response:
    """The page."""
    return _file("index.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
def asset(name: str) -> Response:
    """A file of the page."""
    return _file(name)
