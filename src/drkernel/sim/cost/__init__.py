"""Modelled GPU time: PyTorch operators and Triton launches by one formula (``kernel.py``), on one timeline."""
