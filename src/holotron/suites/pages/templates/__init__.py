"""The pages themselves, by kind."""
