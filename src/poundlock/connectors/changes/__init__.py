"""What sources of changes of tables share: chunks of rows beside a log, put back to a place of it, and the form that Debezium writes."""
