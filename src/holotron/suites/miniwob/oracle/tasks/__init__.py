"""The oracles, grouped by what their tasks are about."""
