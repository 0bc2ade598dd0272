"""Records and their costs -> reports that people read."""
