"""Formats whose records are of a schema that stands elsewhere: in a registry, or in a file of descriptors."""
