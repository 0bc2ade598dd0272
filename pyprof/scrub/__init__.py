"""A capture -> the same measurements without what identifies a person or a machine."""
