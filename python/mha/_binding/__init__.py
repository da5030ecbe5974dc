"""The binding: the generated declarations, calls and their errors, contexts, progress, and the places of the library and its models."""
