"""The ledger of decisions: its files, their archive, and how the next record is made."""
