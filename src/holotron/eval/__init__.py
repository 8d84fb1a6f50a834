"""Ways to find out how good a policy is."""
