"""From examples to a better policy: packing, supervised stages, optimisers, checkpoints. Online RL belongs here."""
