"""Worlds with tasks: MiniWoB++, generated pages, screens to point at; each with its teachers."""
