"""KafkaSource: topics read by the tasks themselves. The driver plans offset ranges, the tasks fetch and decode them by columns."""
