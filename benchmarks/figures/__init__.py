"""Kernels and published figures of ``benchmarks/model_vs_figures.py``."""
