"""Data sets in layouts that others published, brought into a store of episodes and out of one."""
