"""Databases that have a JDBC driver."""
