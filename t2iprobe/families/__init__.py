"""Task families: what a prompt is made of, how tasks are drawn, worded, coded and split."""
