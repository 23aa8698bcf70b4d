"""Bulk formats of files: their writers, the options of Parquet files."""
