"""Files as a sink: hidden segments that a decision makes visible."""
