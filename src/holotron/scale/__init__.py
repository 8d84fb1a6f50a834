"""Many machines: engine replicas and what moves between them, on Ray."""
