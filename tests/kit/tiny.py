"""A tiny policy and corpus shared by the tests of sampling and training."""

from drkernel.rl.model.policy import PocketConfig, Policy, PolicyConfig, TokenizerConfig
from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer

WORDS = ("alpha", "beta", "gamma", "delta")
POCKET = PocketConfig(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=64, context=350)


def answer(word: str) -> str:
    return f"```python\nclass ModelNew:\n    name = {word}\n```"


def prompt(word: str) -> str:
    return f"Write ModelNew.\n```python\nclass Model:\n    name = {word}\n```"


def texts() -> list[str]:
    return [text for word in WORDS for text in (answer(word), prompt(word), f"Good {word}. Improve it.")] * 3


def tiny_tokenizer(split="line", vocab_size: int = 320) -> ChatTokenizer:
    return train_tokenizer(texts(), vocab_size, split)


def tiny_policy(seed: int = 0, **config) -> Policy:
    terms = PolicyConfig(pocket=POCKET, tokenizer=TokenizerConfig(vocab_size=320), device="cpu", **config)
    return Policy.from_scratch(terms, tiny_tokenizer(), seed)
