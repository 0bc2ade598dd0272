"""Two captures beside each other: what changed, and whether it is more than noise."""
