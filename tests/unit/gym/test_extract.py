"""Code out of a model's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkernel.gym.languages import MAX_SOURCE_BYTES, ExtractError, extract_code

MODULE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def block(body: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{body}{fence}\n"


def test_the_last_block_counts():
    first = MODULE.replace("pass", "a = 1")
    assert extract_code(f"Try:\n{block(first)}Better:\n{block(MODULE)}Done.") == MODULE


def test_the_block_with_the_module_wins_over_a_later_usage_example():
    assert extract_code(block(MODULE) + "Use it so:\n" + block("model = make()\n")) == MODULE


@pytest.mark.parametrize("usage", ["model = ModelNew().cuda()\n", "from kernel import ModelNew\nassert ModelNew()\n"])
def test_a_usage_example_that_names_the_module_is_not_the_module(usage):
    assert extract_code(block(MODULE) + "Use it so:\n" + block(usage)) == MODULE


@pytest.mark.parametrize("indent", ["   ", "\t"])
def test_a_block_in_a_list_is_moved_to_the_margin(indent):
    text = "".join(indent + line for line in block(MODULE).splitlines(keepends=True))
    assert extract_code(f"1. So:\n\n{text}\n2. Done.") == MODULE


def test_a_closing_fence_behind_the_code_and_a_byte_order_mark():
    assert extract_code("```python\n\ufeff" + MODULE.rstrip() + "```\n") == MODULE


def test_a_text_that_is_nothing_but_a_module_is_taken():
    assert extract_code("\n" + MODULE).strip() == MODULE.strip()
    with pytest.raises(ExtractError, match="no ```python"):
        extract_code("Here it is:\n" + MODULE)


@pytest.mark.parametrize("language", ["python", "py", "Python", "triton", ""])
def test_languages_that_count_as_python(language):
    assert extract_code(block(MODULE, language)) == MODULE


def test_longer_fences_and_tildes():
    inner = MODULE + '"""\n```\n"""\n'
    assert extract_code(block(inner, fence="````")) == inner
    assert extract_code(block(MODULE, fence="~~~")) == MODULE


def test_missing_closing_fence_is_taken_when_the_module_is_whole():
    assert extract_code("```python\n" + MODULE) == MODULE


@pytest.mark.parametrize("cut", ["class ModelNew(torch.nn.Module):\n    def forward(self, x):\n", "import torch\n"])
def test_an_answer_cut_off_inside_the_block_says_so(cut):
    with pytest.raises(ExtractError, match="cut off"):
        extract_code("```python\n" + cut)


def test_a_second_opening_fence_discards_the_unclosed_first():
    assert extract_code("```python\nhalf = (\n```python\n" + MODULE + "```") == MODULE


def test_thoughts_are_not_the_answer():
    draft = block("class ModelNew: draft = 1\n")
    assert extract_code(f"<think>{draft}</think>\n{block(MODULE)}") == MODULE
    with pytest.raises(ExtractError, match="no ```python"):
        extract_code(f"<think>{draft}</think> I give up.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no ```python"),
        ("just prose", "no ```python"),
        ("```python\n\n```", "no ```python"),
        ("```cpp\nint x;\n```", "only blocks of language: cpp"),
        ("```python\nx\0\n```", "NUL"),
        ("```python\n" + "#" * (MAX_SOURCE_BYTES + 1) + "\n```", "larger than"),
    ],
)
def test_errors_name_the_cause(text, message):
    with pytest.raises(ExtractError, match=message):
        extract_code(text)


@given(st.text(alphabet=st.sampled_from(list("`~pythonModelNew \n\t:x</>")), max_size=300))
def test_any_text_gives_code_or_a_clear_error(text):
    try:
        code = extract_code(text)
    except ExtractError as error:
        assert str(error).endswith((".", "."))
    else:
        assert code.strip() and "".join(code.split()) in "".join(text.split())
