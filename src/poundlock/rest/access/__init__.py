"""Who may ask a job over REST, from where, and over what: tokens with roles, TLS, and the guard in front of all routes."""
