"""Errors of reading MySQL and MariaDB."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        310,
        "MySQL and MariaDB",
        modules=("connectors.mysql",),
        codes=(
            ErrorCode(
                2,
                "The server, or a table of it, cannot be read as it is set up.",
                (
                    "a wrong user, password or table",
                    "a right that is missing",
                    "a server that does not log rows whole, with the names of columns",
                ),
                (
                    "do what the second line says: docs/mysql.md",
                    "log in with the server's own client and the same user",
                ),
            ),
            ErrorCode(
                3,
                "The server did not answer, or could not do for now what it was asked.",
                (
                    "a server that is away or restarting",
                    "somebody else reads the log as the same server_id",
                    "a table that was altered while a chunk of it was read",
                ),
                ("see that the server runs; the job goes on by itself", "give the job a range of its own in server_id"),
            ),
            ErrorCode(
                4,
                "The log has something that cannot be followed exactly, or a value that does not fit.",
                (
                    "a table that was altered by more than a column added",
                    "rows that were logged as statements, or in part",
                    "a date such as 0000-00-00",
                ),
                ("do what the second line says: docs/mysql.md", "start the job over into an empty target"),
            ),
            ErrorCode(
                6,
                "A part of the log that the job still needs is gone, or the log is another one.",
                (
                    "the server removed files of its log",
                    "RESET MASTER",
                    "another server behind the same name",
                    "a table that was dropped or renamed",
                ),
                (
                    "start the job over, with an empty target and a new checkpoint",
                    "let the server keep its log for longer: binlog_expire_logs_seconds",
                ),
            ),
        ),
    ),
)
