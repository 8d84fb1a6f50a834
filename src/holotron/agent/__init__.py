"""The loop: what a policy may ask for, how it is asked, and the episodes that come of it."""
