"""Generic helpers: errors, progress, atomic file writes, randomness, lazy imports."""
