"""One small solver per task, grouped by what they do with the page."""
