"""From the statements of a script to relations: names, types, windows, joins and aggregates."""
