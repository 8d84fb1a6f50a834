"""What the policy is: its configuration, its layers, its vision tower, its files and its inputs."""
