"""The demo: the main job on a real broker, killed twice while it writes, then audited record by record."""
