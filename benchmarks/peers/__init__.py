"""What a Python user would pick instead, as baselines: installed once by `make bench-peers`, then run beside ours in the same minutes."""
