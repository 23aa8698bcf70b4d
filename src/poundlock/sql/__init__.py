"""Flink SQL on poundlock: a script is parsed whole, checked whole, and becomes the same graph that a Python job is."""
