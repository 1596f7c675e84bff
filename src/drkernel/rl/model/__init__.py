"""The policy: model, tokenizer, forward pass and sampler."""
