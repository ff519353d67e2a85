"""What can be read in a model, without its weights if need be, and whether it is read rightly."""
