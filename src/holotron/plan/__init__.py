"""What fits on a GPU, and what a step costs there."""
