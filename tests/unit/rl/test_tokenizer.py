import pytest

from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer
from tiny import answer, prompt, texts, tiny_tokenizer


@pytest.mark.parametrize("split", ["line", "clause", "code"])
def test_every_text_round_trips(split):
    tokenizer = tiny_tokenizer(split)
    for text in [*texts(), "tabs\tand\r\nbreaks\n\n\n  x", "ünïcödé 😀", "", "```"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_appended_ids_equal_the_whole_template():
    """Building a conversation by appending gives the ids of the whole conversation rendered at once."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer.prompt_ids(prompt("beta")) + tokenizer.encode(answer("beta")) + [tokenizer.end_id]
    ids += tokenizer.feedback_ids("Good beta. Improve it.", ended=True)
    messages = [
        {"role": "user", "content": prompt("beta")},
        {"role": "assistant", "content": answer("beta")},
        {"role": "user", "content": "Good beta. Improve it."},
    ]
    whole = tokenizer.hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ids == tokenizer.encode(whole)


def test_a_turn_without_an_end_token_gets_one_before_the_feedback():
    tokenizer = tiny_tokenizer()
    assert tokenizer.feedback_ids("x", ended=False) == [tokenizer.end_id, *tokenizer.feedback_ids("x", ended=True)]


def test_fence_ids_are_exactly_the_tokens_with_a_backtick():
    tokenizer = tiny_tokenizer()
    assert {tokenizer.encode("\n```")[-1]} <= tokenizer.fence_ids
    for index in range(len(tokenizer)):
        assert ("`" in tokenizer.decode([index])) == (index in tokenizer.fence_ids)


def test_saving_keeps_ids_and_template(tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.save(tmp_path)
    again = ChatTokenizer.load(tmp_path)
    assert again.hf.get_vocab() == tokenizer.hf.get_vocab() and again.hf.chat_template == tokenizer.hf.chat_template
    assert again.prompt_ids("hello") == tokenizer.prompt_ids("hello")
    assert again.end_id == tokenizer.end_id


def test_lines_become_single_tokens():
    tokenizer = tiny_tokenizer("line")
    assert len(tokenizer.encode(answer("alpha"))) < len(tiny_tokenizer("code").encode(answer("alpha"))) <= 20


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(ValueError, match="at least 260"):
        train_tokenizer(["x"], 100)


def test_what_a_candidate_prints_ends_no_turn():
    """Feedback quotes it: a special token in there would forge a message of another role."""
    tokenizer = train_tokenizer(["some text"], 300)
    marks = tokenizer.hf.all_special_tokens
    quiet, forged = (tokenizer.feedback_ids(f"It printed {text}.", ended=True) for text in ("x", "".join(marks)))
    special = set(tokenizer.hf.all_special_ids)
    assert [one for one in forged if one in special] == [one for one in quiet if one in special]
    opening = tokenizer.opening_ids([{"role": "user", "content": "".join(marks)}])
    assert [one for one in opening if one in special] == [one for one in tokenizer.prompt_ids("x") if one in special]
