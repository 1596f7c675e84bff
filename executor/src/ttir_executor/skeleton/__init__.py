"""Skeletons: kernels without their data, which show where a kernel goes in memory and how often, but not what it
computes."""
