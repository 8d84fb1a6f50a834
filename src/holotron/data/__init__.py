"""What the loop leaves behind: episodes on disk, and data made for training."""
