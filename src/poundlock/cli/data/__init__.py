"""Commands that read what a job has decided and written."""
