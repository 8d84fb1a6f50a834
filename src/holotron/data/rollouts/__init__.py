"""Many episodes at once, every one of them recorded."""
