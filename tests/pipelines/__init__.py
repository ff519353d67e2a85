"""Tiny random pipelines, one file an architecture, with the parts that they share."""
