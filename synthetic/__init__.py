"""The synthetic experiments of "Scaling can lead to compositional generalization"."""
