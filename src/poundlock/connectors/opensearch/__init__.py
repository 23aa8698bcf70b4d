"""The OpenSearch and Elasticsearch sinks: documents by `_bulk`, effectively once by id and external version."""
