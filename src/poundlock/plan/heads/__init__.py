"""The operator at the head of a stage of each kind: what tasks build of a node."""
