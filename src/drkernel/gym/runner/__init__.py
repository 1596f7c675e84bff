"""The untrusted process: the zygote that forks it, what it does, what goes in and out."""
