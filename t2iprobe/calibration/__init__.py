"""What a pipeline does with a prompt: rows, steps, streams and tokens, seen in a few short calls."""
