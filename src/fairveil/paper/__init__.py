"""The paper's experiments, one module each."""

#: The names for `fairveil reproduce`; defined here, so that help does not wait for their imports.
NAMES = ("gaussian", "adult-1", "adult-eo", "adult-2", "genki", "har", "utkface")
