"""One run: its settings, its folder, and the stages generate, score, probe, correlate, report."""
