"""What a pipeline does with a prompt, found by trying it: rows, streams, tokens and steps."""
