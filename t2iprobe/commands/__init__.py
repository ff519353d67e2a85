"""One module per command: parse the settings, call the work, print the outcome. No work of its own."""
