"""What can be done: actions, keys, coordinates, and the dialects other systems write them in."""
