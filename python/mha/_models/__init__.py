"""Models: checkpoints, tokenizers, the forward and backward pass, scoring and generation."""
