"""Messages of Protobuf as columns and back, by descriptors: those of a generated class, of a descriptor set, or of the text of a schema."""
