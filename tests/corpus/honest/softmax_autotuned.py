# twin of: 48, 75
# base: softmax_heuristics
# Autotuned over warps and blocks; the autotuner keeps a cache by shape.
# - @triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
# + CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 256) for warps in (2, 4)]
# + @triton.autotune(configs=CONFIGS, key=["cols"])
