"""Queues of RabbitMQ as a source, and exchanges as a sink."""
