"""Layers: linear, norm and loss, rotary positions, transformer blocks, and the published variants of multi-head attention."""
