"""Reading activations while images are made: what to read, pooling, recording, generation."""
