"""Images and activations in one pass: what is read, the hooks, the pooling."""
