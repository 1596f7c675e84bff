"""PyTorch's operators and recorded runs, evaluated in finite fields (``ttir_executor.exact``)."""
