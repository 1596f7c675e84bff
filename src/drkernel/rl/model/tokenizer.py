"""Text to token ids and back, for chats that grow by appending ids.

A conversation is never tokenised twice: the first prompt is encoded once, the policy's own ids are kept as sampled, and
each later user message becomes a *suffix* that is appended. The loss therefore sees exactly what the sampler saw.
:func:`train_tokenizer` builds a byte-level BPE tokenizer from local texts, with no download.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

PAD, USER, ASSISTANT, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for message in messages %}### {{ message['role'] }}\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)
# Pieces that merges may not cross. "code": a line break with its indent, a (dotted) name with the space before and the
# bracket after it, a run of signs, spaces. "line": whole lines, so that a frequent line becomes one token and a kernel
# about fifty; meant for a small model and a corpus with few distinct lines. "clause": lines split after the assigned
# name and after every comma, so that a small model finds "v2 = " where it occurred before and copies arguments.
PIECES = {
    "code": [(r"\n+ *| ?[A-Za-z_.0-9]+\(?| ?[^\sA-Za-z0-9_.]+| +|\s", "isolated")],
    "line": [(r"\n", "merged_with_next")],
    "clause": [(r"\n *\w+ = ", "isolated"), (r"\n", "merged_with_next"), (r", ", "merged_with_previous")],
}
Split = Literal["code", "line", "clause"]
_SENTINEL = "\u241f7c\u241f"  # stands for the assistant's text when a template is taken apart


class ChatTokenizer:
    """A Hugging Face fast tokenizer with the operations that chats need.

    Templates come from the tokenizer; one without a template (a base model) gets a plain ``### role`` layout.
    """

    def __init__(self, tokenizer: Any):
        self.hf = tokenizer
        if not self.hf.chat_template:
            self.hf.chat_template = PLAIN_TEMPLATE
        self._suffix_cache: tuple[str, str] | None = None
        self.end_id: int = self._find_end()
        pad = self.hf.pad_token_id
        self.pad_id: int = self.end_id if pad is None else int(pad)
        self.fence_ids: frozenset[int] = frozenset(
            index for index in range(len(self.hf)) if "`" in self.hf.decode([index], skip_special_tokens=True)
        )

    def __len__(self) -> int:
        return len(self.hf)

    @classmethod
    def load(cls, path: str | Path) -> ChatTokenizer:
        """Read a tokenizer from a directory or by Hugging Face name."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(str(path)))

    def save(self, directory: str | Path) -> None:
        """Write the tokenizer where :meth:`load` (and ``AutoTokenizer``) read it back."""
        self.hf.save_pretrained(str(directory))

    def encode(self, text: str) -> list[int]:
        """Return the ids of text; no special token is added."""
        return list(self.hf.encode(text, add_special_tokens=False))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids without special tokens."""
        return str(self.hf.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def prompt_ids(self, user: str) -> list[int]:
        """Return the ids that open a conversation with one user message and pass the turn to the assistant."""
        text = self._render([{"role": "user", "content": user}], open_turn=True)
        return self.encode(text)

    def opening_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the ids of the messages that open a conversation (optionally a system message first), up to the
        assistant's turn."""
        return self.encode(self._render(messages, open_turn=True))

    def feedback_ids(self, user: str, *, ended: bool) -> list[int]:
        """Return the ids to append after an assistant's turn: its end (unless already sampled: ``ended``), a user
        message, and the start of the next assistant turn."""
        before, after = self._around_feedback()
        text = before + self._plain(user) + after
        end = self.hf.convert_ids_to_tokens(self.end_id)
        if ended and text.startswith(end):
            text = text[len(end) :]
        return self.encode(text)

    def _plain(self, text: str) -> str:
        """``text`` in which no special token is recognised: what a candidate prints must not end or begin a turn."""
        for token in self.hf.all_special_tokens:
            text = text.replace(token, f"{token[:1]} {token[1:]}") if len(token) > 1 else text
        return text

    def _render(self, messages: list[dict[str, str]], *, open_turn: bool) -> str:
        plain = [{**message, "content": self._plain(message["content"])} for message in messages]
        return str(self.hf.apply_chat_template(plain, tokenize=False, add_generation_prompt=open_turn))

    def _around_feedback(self) -> tuple[str, str]:
        """Return the template text between an assistant's turn and the next user message, and after that message.

        The template is rendered with a marker in both places and split there. This works for any template that copies
        contents verbatim; others are refused.
        """
        if self._suffix_cache is None:
            mark, other = _SENTINEL, _SENTINEL[::-1] + "u"
            rendered = self._render(
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": mark},
                    {"role": "user", "content": other},
                ],
                open_turn=True,
            )
            if rendered.count(mark) != 1 or rendered.count(other) != 1:
                raise ValueError("this chat template rewrites message contents; give the tokenizer a plain template")
            before, after = rendered.split(mark)[1].split(other)
            self._suffix_cache = (before, after)
        return self._suffix_cache

    def _find_end(self) -> int:
        """Return the id that ends an assistant's turn: the special token that the template puts there, else the eos
        token."""
        before, _ = self._around_feedback()
        ids = self.encode(before)
        if ids and ids[0] in self.hf.all_special_ids:
            return int(ids[0])
        if self.hf.eos_token_id is None:
            raise ValueError("the tokenizer has no end token: set eos_token in its tokenizer_config.json")
        return int(self.hf.eos_token_id)


def train_tokenizer(texts: Iterable[str], vocab_size: int, split: Split = "code") -> ChatTokenizer:
    """Train a byte-level BPE tokenizer of at most ``vocab_size`` entries on ``texts``; every text round-trips.

    ``split`` selects the boundaries that merges may not cross, see :data:`PIECES`. Deterministic for equal texts in
    equal order.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), behavior) for pattern, behavior in PIECES[split]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    special = [PAD, USER, ASSISTANT, END]
    if vocab_size < len(alphabet) + len(special):
        raise ValueError(f"vocab_size must be at least {len(alphabet) + len(special)} (all bytes), got {vocab_size}")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return ChatTokenizer(fast)
