"""Reading databases by JDBC."""
