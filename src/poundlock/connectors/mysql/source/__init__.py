"""Reads tables of MySQL and MariaDB as they change."""
