"""The attention operator: one call, plans, the backward pass, and the KV cache."""
