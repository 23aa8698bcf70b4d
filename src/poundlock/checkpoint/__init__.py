"""The two gates: participants prepare, one durable decision is recorded, participants commit."""
