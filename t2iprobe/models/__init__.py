"""Loading diffusers pipelines, finding their sites, and generating images while reading activations."""
