"""Where the work of a release runs: threads of one machine, or a Ray cluster."""
