"""The world: real browsers, kept apart from each other and from what they may not touch."""
