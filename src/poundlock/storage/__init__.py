"""File systems for ledger, segments and finished files, behind one small protocol."""
