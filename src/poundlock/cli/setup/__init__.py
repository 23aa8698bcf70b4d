"""Commands around a job: the machine, connectors, plans, new projects, deployment."""
