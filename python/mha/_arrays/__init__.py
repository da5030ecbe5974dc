"""Arrays: access without copies, named tensors, files of tensors, and random numbers."""
