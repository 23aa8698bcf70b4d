"""Schema registries: schemas that values name by a number, the formats that read and write such values, and who asks the registry."""
