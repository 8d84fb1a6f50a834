"""What a browser may reach, and what it must not show."""
