"""Checks of MiniWoB++ that take too long for the tests: `python -m tests.suites.miniwob_checks`."""
