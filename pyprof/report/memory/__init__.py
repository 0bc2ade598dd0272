"""Allocations -> what holds the memory: replay, kinds, tables, screen, advice."""
