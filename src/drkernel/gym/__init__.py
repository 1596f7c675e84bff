"""The gym grades candidate kernels: judge, runner, sandbox, pools, reward."""
