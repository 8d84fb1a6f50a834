"""From samples to a better policy: packing, the supervised stages, optimisers, checkpoints. Online RL has its place here."""
