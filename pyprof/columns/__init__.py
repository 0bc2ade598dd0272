"""Plain numpy algorithms that know nothing of captures: distinct rows, growing columns, joins, intervals, nesting."""
