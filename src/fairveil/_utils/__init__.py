"""Helpers without knowledge of the field: errors, progress, atomic files, randomness, lazy imports."""
