"""What can be read in a model, and whether it is read rightly: behind `inspect` and `doctor`."""
