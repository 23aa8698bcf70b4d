"""How others reach a job: its registry entry, its control files, its supervisor, the cluster that has its driver."""
