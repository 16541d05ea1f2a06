"""Release of a file: one driver, a stream for tables and one for images, the ledger and the card."""
