"""Which combinations of modules are seen in training, and which are held out."""

from synthetic.supports.build import ALIASES, FIXED, SUPPORTS, make_support
from synthetic.supports.combos import Support, all_combinations, count_combinations, min_connected

__all__ = [
    "ALIASES",
    "FIXED",
    "SUPPORTS",
    "Support",
    "all_combinations",
    "count_combinations",
    "make_support",
    "min_connected",
]
