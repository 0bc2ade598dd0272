"""Advice: one module a kind. `base` has what they share, `kinds` the list of them."""
