"""Linear probes. They know arrays only: (n, d) activations and (n, c) targets."""
