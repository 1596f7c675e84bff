"""Tasks: the built-in suite, loaders, input drawing, the fp64 oracle and the admission gate."""
