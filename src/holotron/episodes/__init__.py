"""Episodes on disk: what the loop leaves behind, safe against crashes and readable by everyone."""
