"""Getting a checkpoint: its name, the hub, files and LoRAs, and what is remembered of it."""
