"""Tables as sources and sinks of jobs: what the options of WITH mean."""
