"""The paper's experiments, one module each."""

#: By which `fairveil reproduce` knows them; here, because help must not wait for what they import.
NAMES = ("gaussian", "adult-1", "adult-eo", "adult-2", "genki", "har", "utkface")
