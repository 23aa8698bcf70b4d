"""`poundlock torture`: a user's own job is killed again and again in a sandbox, and what it wrote is held against a run that nobody disturbed."""
