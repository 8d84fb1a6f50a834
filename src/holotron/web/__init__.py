"""The page on which people look at episodes: served live from a store, or written as a report that needs no server."""
