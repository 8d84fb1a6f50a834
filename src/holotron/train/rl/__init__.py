"""Online RL: groups of attempts at one task, rewards from verifiers, and a policy that learns from the difference."""
