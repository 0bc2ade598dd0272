"""Broken and hostile files: a corpus of small ones of every format, changes to them, and what must hold of every command on them."""
