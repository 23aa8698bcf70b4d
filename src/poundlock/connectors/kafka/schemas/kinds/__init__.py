"""What reads and writes values of each kind of schema: Avro, Protobuf and JSON Schema."""
