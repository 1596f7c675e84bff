"""TTIR to LLVM IR: one native function that runs a range of a kernel's programs (see docs/executor.md)."""
