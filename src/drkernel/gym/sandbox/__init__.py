"""What surrounds an untrusted process: namespaces, Landlock, seccomp, limits."""
