"""Judges of images. They know images and tasks only."""
