"""What generated pages and screens are made of: random draws, words and HTML."""
