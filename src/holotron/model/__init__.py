"""What the policy is: its configuration, its layers, its eyes, its files and its inputs."""
