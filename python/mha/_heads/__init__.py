"""Heads: what each head does, which heads matter, pruning and regrouping, and head layouts of new models."""
