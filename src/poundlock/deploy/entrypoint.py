"""`python -m poundlock.deploy.entrypoint`: the first program of the image that `poundlock deploy image` describes.

Spark starts an executor in it by the one argument "executor" and by variables, as its own images are started; anything else is a
command. It imports nothing but the standard library, and becomes the program that it starts, so that signals reach that.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# The variables of Spark's Kubernetes constants (SPARK_DRIVER_URL and so on) and the options that its own image makes of them.
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_([0-9]+)")


def executor_command(environment: Mapping[str, str]) -> list[str]:
    """Return the command of an executor.

    Raises:
        KeyError: a variable that Spark sets for an executor is not there.
    """
    numbered = [
        (int(match[1]), value) for name, value in environment.items() if (match := _JAVA_OPTION.fullmatch(name))
    ]
    home = environment["SPARK_HOME"]
    places = [environment.get("SPARK_CONF_DIR", f"{home}/conf"), f"{home}/jars/*"]
    if more := environment.get("SPARK_EXTRA_CLASSPATH"):
        places.append(more)
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java = f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java"
    return [
        java,
        *(value for _, value in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(places),
        _BACKEND,
        *(word for option, name in _OPTIONS.items() for word in (option, environment[name])),
    ]


def main(arguments: Sequence[str]) -> int:
    """Become the executor, or the command; return an exit code where that cannot be."""
    try:
        command = executor_command(os.environ) if list(arguments) == ["executor"] else list(arguments)
        if not command:
            raise OSError("no command was given")
        os.execvp(command[0], command)
    except KeyError as missing:
        print(
            f"an executor was asked for, and {missing.args[0]} is not set\n"
            "Next: let Spark start it: poundlock run --master k8s://…",
            file=sys.stderr,
        )
    except OSError as error:
        print(
            f"{' '.join(arguments)[:200]}: {error}\nNext: give a command of the image: python -m poundlock …",
            file=sys.stderr,
        )
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
