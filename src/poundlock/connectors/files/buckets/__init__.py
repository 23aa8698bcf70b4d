"""Where a record goes below a file sink's folder."""
