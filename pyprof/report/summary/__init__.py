"""Where the time of a capture goes and what to do about it: one object, shown as a screen, as tables or as JSON."""
