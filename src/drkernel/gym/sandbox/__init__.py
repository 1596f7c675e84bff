"""The confinement of an untrusted process: namespaces, Landlock, seccomp, limits."""
