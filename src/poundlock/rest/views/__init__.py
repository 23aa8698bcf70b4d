"""What the dashboard shows of a job beyond Flink's paths: read from its checkpoint folder, as typed JSON that scripts may read too."""
