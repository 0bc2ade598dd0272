"""Whole columns of an SQLite file, read from its pages by numpy."""
