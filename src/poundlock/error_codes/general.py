"""Errors of no part in particular: commands, arguments, settings, packages, and what nobody foresaw."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

ELSEWHERE = ErrorSubject(
    0,
    "Unexpected",
    kinds=("unexpected",),
    codes=(
        ErrorCode(
            1,
            "An error that poundlock did not foresee. Its stack trace is in the file that the second line names.",
            ("a bug in poundlock", "an exception of a library that was used in a way nobody tried"),
            (
                "read the last lines of that file: the innermost error often names the cause",
                "start the job again: it goes on from its last checkpoint",
                "report it, with the file",
            ),
        ),
    ),
)
OWN_CODE = ErrorSubject(
    1,
    "An error of your own code",
    codes=(
        ErrorCode(
            1,
            "A connector or a function outside poundlock raised a PoundlockError.",
            ("what the first line says",),
            ("read the first line; the text is that of the connector or function",),
        ),
        ErrorCode(
            2,
            "A connector or a function outside poundlock raised a DefinitionError: it cannot be used as it is written.",
            ("an argument or a setting of that connector",),
            ("do what the second line says; the text is that of the connector",),
        ),
        ErrorCode(
            3,
            "A connector or a function outside poundlock raised a TransientError: what it talks to does not answer for now.",
            ("a server that is away or overloaded",),
            ("see that what it talks to runs; the job goes on by itself",),
        ),
        ErrorCode(
            4,
            "A connector or a function outside poundlock raised a TerminalError.",
            ("data that the connector cannot go on with",),
            ("do what the second line says; the text is that of the connector",),
        ),
        ErrorCode(
            6,
            "A connector outside poundlock reports that data which the job needs is gone.",
            ("the retention of what it reads",),
            ("begin the job again in a new checkpoint folder, or put the data back",),
        ),
        ErrorCode(
            7,
            "A sink outside poundlock does not know whether a commit happened.",
            ("the connection broke while the commit was under way",),
            ("start the job again when the system answers: it asks again",),
        ),
    ),
)
SUBJECTS = (
    ELSEWHERE,
    OWN_CODE,
    ErrorSubject(
        2,
        "The command line",
        modules=("cli", "cli.main"),
        codes=(
            ErrorCode(
                2,
                "A command, an option or a value of one is not understood.",
                (
                    "a word is misspelt: the second line names what is near",
                    "an option stands with a command that does not have it",
                    "a value is missing",
                ),
                ("type the command with --help", "type poundlock alone for all commands"),
            ),
        ),
    ),
    ErrorSubject(
        3,
        "An argument",
        modules=("arguments", "values", "calls", "failpoints", "redaction"),
        codes=(
            ErrorCode(
                2,
                "A value given in Python or as an option is not what it has to be: a duration, a size, a name, a list.",
                ("a number without a unit, where one is needed", "a text where a list is due, or the other way round"),
                ('write the value as the second line shows it, such as "10 s" or "128 MB"',),
            ),
        ),
    ),
    ErrorSubject(
        4,
        "Settings",
        modules=("config",),
        codes=(
            ErrorCode(
                2,
                "A setting is not known or has a value that it cannot have. Settings come from poundlock.toml, from POUNDLOCK_… in the "
                "environment and from -D, and the first line names which it was.",
                ("a misspelt name", "a value without its unit", "a file that is no TOML"),
                ("correct it where the first line says", "see the settings there are in docs/operations.md"),
            ),
        ),
    ),
    ErrorSubject(
        5,
        "A package that is not installed",
        kinds=("missing_package",),
        codes=(
            ErrorCode(
                2,
                "What the job or the command uses needs a Python package that an extra of poundlock brings.",
                (
                    "poundlock was installed without that extra",
                    "the command runs in another environment than the one it was installed into",
                ),
                (
                    "type what the second line says",
                    "see what this machine has: poundlock doctor",
                ),
            ),
        ),
    ),
    ErrorSubject(
        6,
        "Secrets",
        modules=("connectors.secrets",),
        codes=(
            ErrorCode(
                2,
                "A password or key that is read from a file or from the environment is not there.",
                ("the variable is not set where the job runs", "the file cannot be read by this user"),
                ("set the variable or correct the path, on each machine that runs the driver",),
            ),
        ),
    ),
    ErrorSubject(
        7,
        "The file of a job",
        modules=("cli.job_loader", "cli.python_errors"),
        codes=(
            ErrorCode(
                2,
                "The Python file of a job cannot be read, raises an error while it runs, or defines no job.",
                (
                    "the path is wrong",
                    "a mistake of Python's, whose line the first line names",
                    "a module that is not installed in this environment",
                    "several jobs in one file, and none is named",
                ),
                ("mend the line that is named", "name a job as job.py:NAME where a file defines several"),
            ),
        ),
    ),
    ErrorSubject(
        8,
        "A new project",
        modules=("cli.setup.new", "cli.setup.project"),
        codes=(
            ErrorCode(
                2,
                "The folder of a new project cannot be made.",
                (
                    "it has files in it already",
                    "its name cannot be that of a job",
                    "this user may not write there",
                    "a source or sink that is not known",
                ),
                ("choose another name or place",),
            ),
        ),
    ),
)
