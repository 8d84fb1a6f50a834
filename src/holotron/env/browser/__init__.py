"""Real browsers: processes, isolated contexts, tabs, screenshots."""
