"""Keyed state: immutable sorted files, the manifest that names them, and what a task does with them. No Spark, no JVM."""
