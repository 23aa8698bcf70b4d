"""Finds the job in a user's file; a fault in the file is reported with its line.

The file is run under a name of its own that is not kept, so that Spark sends its functions to the workers whole.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import poundlock
from poundlock.cli.python_errors import meant
from poundlock.errors import DefinitionError, PoundlockError, did_you_mean, pip_install
from poundlock.job import LOADING, Job


def load_job(target: str) -> Job:
    """Return the job of `file.py` or `file.py:name`.

    Args:
        target: path of a Python file; after a colon the variable the job is in, or the job's own name.

    Raises:
        DefinitionError: there is no such file or job, there are several, or the file fails; says which line.
    """
    path, name = split_target(target)
    jobs: dict[str, Job] = {}
    for variable, value in vars(_execute(path)).items():
        if isinstance(value, Job) and not any(value is other for other in jobs.values()):
            jobs[variable], value.script = value, shlex.quote(target)
    if not jobs:
        raise DefinitionError(
            f"{path} defines no job", next='make one at the top level of the file: job = Job("event-log")'
        )
    if name:
        chosen = jobs.get(name) or next((job for job in jobs.values() if job.name == name), None)
        if chosen is None:
            every = f"use one of: {', '.join(jobs)}"
            choice = did_you_mean(name, jobs, every, show=lambda near: f"{path}:{near}")
            raise DefinitionError(f"{path} has no job {name!r}", next=choice)
        return chosen
    if len(jobs) > 1:
        raise DefinitionError(
            f"{path} defines {len(jobs)} jobs: {', '.join(jobs)}", next=f"name one: {path}:{next(iter(jobs))}"
        )
    return next(iter(jobs.values()))


def split_target(target: str) -> tuple[Path, str]:
    """Return the file of `file.py` or `file.py:name`, and the name; "" if there is none. Raises DefinitionError."""
    path, _, name = target.rpartition(":") if ":" in target and not target.endswith(".py") else (target, "", "")
    file = Path(path)
    if not file.is_file():
        folder = file.parent
        names = sorted(each.name for each in folder.glob("*.py") if each.is_file()) if folder.is_dir() else []
        every = f"Python files there: {', '.join(names[:5])}" if names else "give the path of your job, such as job.py"
        next = did_you_mean(file.name, names, every, show=lambda near: str(folder / near))
        raise DefinitionError(f"there is no file {path}", next=next)
    if file.suffix.lower() == ".sql":
        raise DefinitionError(
            f"{path} is a script of SQL, and no job of Python",
            next=f"its jobs run by: {shlex.join(['poundlock', 'sql', str(path)])}; those that ran are known by their names: poundlock list -a",
        )
    return file, name


def find_modules_in(folder: Path) -> None:
    """Have the modules in a folder found, here and by workers, which are given the same path."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    known = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each != place]
    os.environ["PYTHONPATH"] = os.pathsep.join([place, *known])


def _execute(file: Path) -> ModuleType:
    """Run the user's file as a module and return it."""
    path = file.resolve()
    find_modules_in(path.parent)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    shadowed = sys.modules.get(path.stem)
    sys.modules[path.stem] = module  # dataclasses look their module up while the file runs
    loading = LOADING.set(True)
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        exec(code, module.__dict__)
    except SyntaxError as error:
        place = f"{error.filename or file}:{error.lineno}" if error.lineno else str(file)
        mend = f"mend line {error.lineno}" if error.lineno else "give a Python source file"
        raise DefinitionError(f"{place}: {error.msg}", next=mend) from error
    except PoundlockError as error:
        raise DefinitionError(f"{_where(error, path)}: {error.what}", next=error.next) from error
    except ModuleNotFoundError as error:
        ours = [f"poundlock.{each.name}" for each in iter_modules(poundlock.__path__)]
        mend = did_you_mean(str(error.name), ours, pip_install(str(error.name)), cutoff=0.9)
        raise DefinitionError(f"{_where(error, path)}: {error}", next=mend) from error
    except (Exception, SystemExit) as error:
        raise DefinitionError(f"{_where(error, path)}: {type(error).__name__}: {error}", next=meant(error)) from error
    finally:
        LOADING.reset(loading)
        # Spark pickles the functions of a module it cannot import by value: what runs there is what was read here.
        if shadowed is None:
            sys.modules.pop(path.stem, None)
        else:
            sys.modules[path.stem] = shadowed
    return module


def _where(error: BaseException, path: Path) -> str:
    """Return file:line of the newest frame in the user's folder."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
