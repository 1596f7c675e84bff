"""The executor: runs TTIR on the CPU as native code, checked and counted."""
