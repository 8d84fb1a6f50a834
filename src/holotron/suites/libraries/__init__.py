"""Tasks and screens in the looks of published UI libraries, which are fetched and not shipped."""
