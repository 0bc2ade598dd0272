"""Stage 3: records become costs, and costs become columns."""
