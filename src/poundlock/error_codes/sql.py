"""Errors of SQL: by their kind where they have one, as the recorded scripts of Flink call it."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject


def _statement(
    number: int, title: str, kinds: tuple[str, ...], meaning: str, causes: tuple[str, ...], do: tuple[str, ...]
) -> ErrorSubject:
    return ErrorSubject(number, title, (ErrorCode(2, meaning, causes, do),), kinds=kinds)


def _value(
    number: int, title: str, name: str, meaning: str, causes: tuple[str, ...], do: tuple[str, ...]
) -> ErrorSubject:
    return ErrorSubject(number, title, (ErrorCode(4, meaning, causes, do),), classes=(name,))


_CARET = "look at the caret below the statement"

SUBJECTS = (
    ErrorSubject(
        200,
        "A statement of SQL",
        modules=("sql",),
        codes=(
            ErrorCode(2, "A statement cannot be run as it is written.", ("what the first line says, with line and column",), (_CARET, "see what there is in docs/sql.md")),
            ErrorCode(4, "A statement came upon something that it cannot go on with.", ("another session changed the catalog", "a catalog of a newer version", "data that does not fit its declaration"), ("do what the second line says",)),
        ),
    ),
    _statement(201, "Syntax", ("syntax",), "A statement cannot be read.", ("a missing comma or bracket", "a keyword that is misspelt, or used as a name"), (_CARET, "write names that are keywords in backticks")),
    _statement(202, "A column that is not there", ("unknown_column",), "A statement names a column that none of its tables has.", ("a misspelt name", "a name of SELECT used in WHERE"), (_CARET, "type: DESCRIBE the_table")),
    _statement(203, "A column that is ambiguous", ("ambiguous_column",), "Several tables of a statement have a column of that name.", ("a join of tables with like columns",), ("write the table before it: o.id",)),
    _statement(204, "A table that is not there", ("unknown_table",), "A statement names a table, view or database that does not exist.", ("a misspelt name", "another catalog or database is in use"), ("type: SHOW TABLES",)),
    _statement(205, "A function that is not there", ("unknown_function",), "A statement calls a function that does not exist.", ("a misspelt name", "a function of Spark's that Flink does not have"), ("type: SHOW FUNCTIONS",)),
    _statement(206, "A type that is not there", ("unknown_type",), "A type is not known, or cannot be used at that place.", ("a misspelt type", "a type of another database"), ("see the types in docs/sql.md",)),
    _statement(207, "Types that do not go together", ("type_mismatch",), "Values of types that do not go together are compared, added or inserted.", ("a text where a number is due", "columns of an INSERT in another order"), ("CAST one of them to the other's type",)),
    ErrorSubject(208, "Types of an operator", (ErrorCode(2, "An operator or function does not take values of these types.", ("a text where a number is due",), ("CAST the value to a type that it takes",)),), classes=("TypeMismatch",)),
    _statement(209, "Arguments of a function", ("wrong_arguments",), "A function is called with other arguments than it takes.", ("too many or too few", "values of other types", "a value where a literal is due"), (_CARET, "see the function in docs/sql.md")),
    _statement(210, "A literal", ("bad_literal",), "A literal is none of its type.", ("a date that does not exist", "a number that is too large"), ("correct it, such as DATE '2026-11-27'",)),
    _statement(211, "A query that is not supported", ("unsupported_query",), "A query is right, and poundlock cannot run it, or not on tables that change.", ("a clause that is not there yet", "rows that change, where only new rows can be taken"), ("do what the second line says", "see what is not there yet in docs/sql.md")),
    _statement(212, "Windows of SQL", ("invalid_window",), "A window cannot be as it is written.", ("a slide above the size", "a time column that is missing"), ("correct it: docs/sql.md",)),
    _statement(213, "Time attributes", ("not_a_time_attribute",), "A column is used as a time attribute and is none.", ("a table without WATERMARK FOR", "a CAST of the column", "a query that has lost the attribute"), ("declare WATERMARK FOR the column, and use it as it is",)),
    _statement(214, "Columns that are not grouped", ("not_grouped",), "SELECT names a column that is neither grouped nor in an aggregate.", ("a column that is missing in GROUP BY",), ("add it to GROUP BY, or write MAX(column)",)),
    _statement(215, "Keys of tables", ("primary_key",), "A PRIMARY KEY is missing, or cannot be as it is declared.", ("an upsert table without a key", "ENFORCED is not written as NOT ENFORCED"), ("declare PRIMARY KEY (…) NOT ENFORCED",)),
    _statement(216, "Columns of one name", ("duplicate_column",), "A table, view or query has two columns of one name.", ("SELECT * of a join",), ("give one of them another name with AS",)),
    _statement(218, "Changes into a table that takes rows only", ("updates_into_append_only_sink",), "A query whose rows change is inserted into a table that can only be added to.", ("an aggregate or join without a window", "a format without changes"), ("insert into a table with a PRIMARY KEY, or aggregate in windows",)),
    _statement(220, "Numbers of columns", ("column_count_mismatch",), "Two parts of a statement that have to have as many columns do not.", ("a UNION or an IN of queries that differ", "rows of VALUES that differ in length", "a list of names that is too short or too long"), (_CARET, "select as many columns on both sides")),
    _statement(221, "Columns of an INSERT", ("sink_schema_mismatch",), "What a query gives does not go into the columns of the table.", ("columns in another order", "a column of another type", "too many or too few"), ("type: DESCRIBE the_table", "name the columns: INSERT INTO t (a, b) SELECT …, and CAST them")),
    _statement(222, "An aggregate where none can be", ("illegal_aggregate",), "An aggregate stands where there is no group, or within another one.", ("an aggregate in WHERE",), ("write HAVING behind GROUP BY, or compute it in a sub-query",)),
    _statement(223, "A table that exists", ("table_exists",), "A table or view of that name is there already.", ("the script was run before in this session",), ("write CREATE TABLE IF NOT EXISTS, or DROP TABLE first",)),
    _statement(224, "ORDER BY of a stream", ("order_by_not_time",), "Rows that never end can be ordered by their time, upwards, and by nothing else first.", ("ORDER BY of another column",), ("order by the time attribute first, add a LIMIT, or run it in batch mode",)),
    _statement(225, "Rows that change, where only new ones can be taken", ("updates_not_supported_here",), "A part of a query takes rows that are added alone, and its input changes.", ("MATCH_RECOGNIZE, OVER or a window over an aggregate or a join",), ("put it before what makes the rows change, or aggregate in windows",)),
    _statement(230, "An option that is missing", ("missing_option",), "A table needs an option that its WITH does not have.", ("the option was left out",), ("add it to WITH (…), as the second line shows",)),
    _statement(231, "An option that is not known", ("unknown_option",), "An option of a table, or a setting, is not known.", ("a misspelt name", "an option of another connector or format"), ("correct it: the second line names what is near",)),
    _statement(232, "The value of an option", ("bad_option_value",), "An option or a setting has a value that it cannot have.", ("a duration or size without its unit", "a word that is none of those there are"), ("write one of the values that the second line names",)),
    _statement(233, "A connector that is not known", ("unknown_connector",), "A table has a connector that does not exist here.", ("a misspelt name", "a package that is not installed"), ("type: poundlock connectors", "see the tables in docs/sql.md")),
    _statement(234, "A format that is not known", ("unknown_format",), "A table has a format that does not exist here.", ("a misspelt name", "a connector that does not take it"), ("see the formats in docs/sql-formats.md",)),
    ErrorSubject(240, "Expressions and functions", (ErrorCode(2, "A function of SQL cannot be called as it is written.", ("a pattern, a format or a path that is none", "arguments of types that it does not take", "a text where a literal is due"), ("do what the second line says", "see the function in docs/sql.md")), ErrorCode(4, "An expression of SQL cannot be worked out for a row.", ("a value in the data that nobody expected",), ("guard it, such as with CASE or TRY_CAST, and start the job again: it goes on from its last checkpoint",)),), modules=("sql.functions", "sql.expressions"), classes=("EvaluationError",)),
    _value(241, "Division by zero", "DivisionByZero", "A row divides by zero, which ends the job, as in Flink.", ("a divisor in the data that is 0",), ("write x / NULLIF(y, 0)",)),
    _value(242, "A CAST that fails", "CastFailed", "A value cannot be cast, which ends the job, as in Flink.", ("a text that is no number or date",), ("write TRY_CAST, which gives NULL",)),
    _value(243, "A record that cannot be read", "BadRecord", "A record of a table is not of its format.", ("a line that is no JSON", "another schema than the one that wrote it"), ("set the format's ignore-parse-errors, such as 'json.ignore-parse-errors' = 'true'", "mend the record")),
    _value(244, "A row without a time", "NullRowtime", "The time attribute of a row is NULL.", ("a record without the field", "a format of time that is not that of the table"), ("leave such rows out, or give them a time: COALESCE in a computed column",)),
    _value(245, "NULL in a column that is NOT NULL", "NullInColumn", "A row has NULL in a column that is declared NOT NULL.", ("a record without the field",), ("set 'table.exec.sink.not-null-enforcer' = 'drop', or leave such rows out",)),
    _value(246, "A text that is too long", "ValueTooLong", "A text is longer than its column.", ("a column VARCHAR(n) or CHAR(n)",), ("declare STRING, or set 'table.exec.sink.type-length-enforcer' = 'trim_pad'",)),
    _value(247, "A sub-query of several rows", "SeveralRows", "A sub-query that is used as a value gave several rows.", ("data with several rows, where one was expected",), ("aggregate it, such as MAX(x), or compare with IN",)),
    ErrorSubject(
        250,
        "Functions of SQL of your own",
        modules=("sql.user",),
        classes=("UserFunctionResult",),
        codes=(
            ErrorCode(2, "A function of CREATE FUNCTION cannot be loaded, or is called as it does not allow.", ("a module that is not on the path", "a wrong signature", "types that do not fit its declaration"), ("do what the second line says: docs/sql.md",)),
            ErrorCode(4, "A function of CREATE FUNCTION gave what its declaration has no place for.", ("a value of another type",), ("mend the function, or the types of its declaration",)),
        ),
    ),
    ErrorSubject(
        251,
        "Tables of connectors",
        modules=("sql.connectors", "sql.formats"),
        codes=(
            ErrorCode(2, "A table of a connector cannot be used as it is declared.", ("a column or an option that the connector has no place for",), ("do what the second line says", "see the table's page: docs/sql-kafka.md, docs/sql-formats.md, docs/sql-cdc.md")),
            ErrorCode(4, "Data of a table is not what the table declares.", ("a type that the server's column does not have", "a TRUNCATE, which is no change of known rows"), ("declare the type that is there, and CAST it in the query",)),
        ),
    ),
)  # fmt: skip
