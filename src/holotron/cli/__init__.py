"""The holotron command: one file per subcommand."""
