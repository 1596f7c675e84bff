"""Modelled GPU time: PyTorch operators and Triton launches priced by one formula (``roofline.py``), on one timeline."""
