"""Release of a file: a common driver, separate streams for tables and images, the ledger and the card."""
