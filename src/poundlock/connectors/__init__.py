"""Where records come from and go, one folder a system, and all that whoever writes a connector imports.

Each of these names has one path, `from poundlock.connectors import …`, and is listed once, in `__init__.pyi`; importing the package
itself loads nothing else.
"""

from poundlock import lazily

__all__, __getattr__, __dir__ = lazily(globals())
