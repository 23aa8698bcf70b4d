"""What `poundlock new --from … --to …` writes: each file's text, put together from a source and a sink. Nothing here writes."""
