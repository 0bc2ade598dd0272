"""A name that others still use; it goes when its last caller does."""

from __future__ import annotations


def trim() -> None:
    """Does nothing."""
