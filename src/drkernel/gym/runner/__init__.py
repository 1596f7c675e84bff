"""The untrusted process: the zygote that forks it, the runner inside it, and the values that cross its boundary."""
