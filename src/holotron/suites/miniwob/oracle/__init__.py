"""Teachers that see the page's inside: what to do next from any state of a task."""
