"""What a policy costs to serve: the agent workload, its memory and its speed limits."""
