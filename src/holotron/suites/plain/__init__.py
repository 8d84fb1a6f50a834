"""Small pages written by hand, with several tasks on each."""
