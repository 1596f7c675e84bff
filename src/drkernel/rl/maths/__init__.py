"""The estimators: pure functions of tensors. Each file needs torch and nothing else of drkernel."""
