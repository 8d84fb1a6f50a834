"""One file per family of models: how it is asked for a step and how its answers are read."""
