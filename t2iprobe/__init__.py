"""t2iprobe: what a text-to-image model composes, where the parts get lost, and how sure one can be."""

__version__ = "0.1.0"
