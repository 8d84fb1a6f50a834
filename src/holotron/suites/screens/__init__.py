"""Screens with questions about them: where things are, what they say, what they are."""
