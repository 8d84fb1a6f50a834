"""Web applications on this machine, each with a server, tasks and verifiers, in WebArena-Infinity's layout."""
