"""Streams of Amazon Kinesis as a source and as a sink."""
