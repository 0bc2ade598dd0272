"""Captures -> one self-contained page for a browser: its data, its timeline, its text, its policy."""
