"""Memory of exact values."""

import numpy as np
import pytest

from ttir_executor.exact.field import UNDEFINED, Field
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.values import Exact, compare
from ttir_executor.ttir.ir import bits_of, floats_of

BASE = 4096


def memory(*nbytes: int) -> ExactMemory:
    """Storages a page apart."""
    found = ExactMemory(Field(3))
    for k, size in enumerate(nbytes):
        found.add(BASE * (k + 1), size)
    return found


def drawn(of: ExactMemory, count: int, name: str = "x") -> Exact:
    return Exact.drawn(of.field, name, np.arange(count) + 0.5)


def exact(value: Exact | np.ndarray) -> Exact:
    assert isinstance(value, Exact)
    return value


def test_floats_come_back_with_their_residues() -> None:
    place = memory(64)
    x = drawn(place, 16)
    place.write(BASE + 4 * np.arange(16), "f32", x)
    order = np.array([[3, 1], [15, 3]])
    found = exact(place.read(BASE + 4 * order, "f32"))
    assert compare(found, x.map(lambda part: part[order])).equal.all()
    place.write(np.array([BASE + 12]), "f32", Exact.constant(place.field, 2.0))
    assert found.f[0, 0] == 3.5, "what was read before does not change"


def test_unwritten_floats_are_unknown_and_integers_undecidable() -> None:
    place = memory(64)
    assert (exact(place.read(np.array([BASE]), "f32")).lost & UNDEFINED == UNDEFINED).all()
    with pytest.raises(Undecided, match="nobody wrote"):
        place.read(np.array([BASE]), "i32")
    place.write(np.array([BASE]), "i32", np.array([7]))
    with pytest.raises(Undecided, match="nobody wrote"):
        place.read(np.array([BASE, BASE + 4]), "i32")
    assert place.read(np.array([BASE]), "i32").tolist() == [7]  # type: ignore[union-attr]


def test_the_last_of_equal_addresses_wins() -> None:
    place = memory(16)
    place.write(BASE + 4 * np.array([0, 1, 0, 0]), "i32", np.array([1, 2, 3, 4]))
    place.write(BASE + 4 * np.array([2, 2]), "i32", np.array([5, 6]), np.array([True, False]))
    assert place.read(BASE + 4 * np.arange(3), "i32").tolist() == [4, 2, 5]  # type: ignore[union-attr]


def test_bits_and_kinds() -> None:
    place = memory(8)
    at = BASE + 4 * np.arange(2)
    place.write(at, "f32", Exact.constant(place.field, 1.0))
    assert place.read(at, "i32").tolist() == [0x3F800000] * 2  # type: ignore[union-attr]
    place.write(at[:1], "i32", np.array([0x40000000]))
    found = exact(place.read(at, "f32"))
    assert found.f.tolist() == [2.0, 1.0] and found.has(UNDEFINED)
    place.write(at, "f32", drawn(place, 2))
    assert not exact(place.read(at, "f32")).has(UNDEFINED)


def test_elements_of_another_size() -> None:
    place = memory(8)
    place.write(BASE + 4 * np.arange(2), "f32", drawn(place, 2))
    with pytest.raises(Undecided, match="f32 read as f16"):
        place.read(np.array([BASE]), "f16")
    with pytest.raises(Undecided, match="f32 written as f16"):
        place.write(BASE + 2 * np.arange(3), "f16", drawn(place, 3))
    place.write(BASE + 2 * np.arange(4), "f16", drawn(place, 4))
    assert exact(place.read(np.array([BASE + 6]), "f16")).f.tolist() == [3.5]


def test_addresses_in_several_storages_and_in_none() -> None:
    place = memory(16, 16)
    at = np.array([BASE, 2 * BASE + 4, BASE + 12, 2 * BASE])
    x = drawn(place, 4)
    place.write(at, "f32", x)
    assert compare(exact(place.read(at.reshape(2, 2), "f32")), x.map(lambda part: part.reshape(2, 2))).equal.all()
    for wrong in (BASE - 4, BASE + 16, 3 * BASE):
        with pytest.raises(Undecided, match="outside"):
            place.read(np.array([wrong]), "f32")
    with pytest.raises(Undecided, match="between"):
        place.read(np.array([BASE + 2]), "f32")
    place.remove(2 * BASE)
    with pytest.raises(Undecided, match="outside"):
        place.read(at, "f32")


@pytest.mark.parametrize("elem", ["f64", "f32", "f16", "bf16", "f8E5M2", "f8E4M3FN"])
def test_bits_of_numbers(elem: str) -> None:
    numbers = np.array([0.0, 1.0, -1.5, 0.25, -96.0, 2.0**-6])
    assert floats_of(bits_of(numbers, elem), elem).tolist() == numbers.tolist()


def test_narrow_floats_round_to_even() -> None:
    between = np.array([1 + 1 / 16, 1 + 3 / 16, -(1 + 1 / 16), 2.0**-10])
    assert floats_of(bits_of(between, "f8E4M3FN"), "f8E4M3FN").tolist() == [1.0, 1.25, -1.0, 0.0]
    assert floats_of(bits_of(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bf16"), "bf16").tolist() == [1.0, 1 + 2.0**-6]
