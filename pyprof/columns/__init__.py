"""Building blocks over numpy arrays that know nothing of captures: distinct rows, growing columns, intervals."""
