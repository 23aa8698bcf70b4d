"""The REST interface of a running job, with Flink's paths and shapes. Nothing here is imported before a server is wanted."""
