"""What connectors of message systems share: an inbox for what can only be received, and rows as messages for systems that only append."""
