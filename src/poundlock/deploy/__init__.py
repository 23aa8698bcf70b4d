"""Files that have a job run by systemd or Kubernetes, made from the job and this machine's settings. Nothing here talks to either."""
