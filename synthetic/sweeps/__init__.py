"""The paper's synthetic experiments as named presets: cells to train, results in a table, a figure, a report."""
