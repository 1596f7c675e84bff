"""Triton's IR (TTIR) as records: types, operations, and the reader of its textual form."""
