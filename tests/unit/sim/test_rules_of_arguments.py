"""Numbers and shapes that the device refuses, by themselves."""

import pytest
import torch

from drkernel.sim.cost.records import MetaCall, TensorMeta, Unpriced
from drkernel.sim.cost.roofline import L2State
from drkernel.sim.cost.transforms import factorisation
from drkernel.sim.gpu.argument_checks import _check_numbers, _groups
from drkernel.sim.spec import get_spec

H100 = get_spec("h100")


def test_a_window_is_refused_for_being_too_small_or_too_large():
    for value in ([0], [1, 0], [1 << 40]):
        with pytest.raises(RuntimeError, match="at least 1"):
            _check_numbers("convolution", "stride", value)
    _check_numbers("convolution", "stride", [2])


def test_groups_of_a_tensor_of_two_dimensions_are_fine_and_of_one_are_not():
    _groups(torch.ones(2, 4), 2, 4, 1, 2)
    with pytest.raises(RuntimeError, match="do not fit"):
        _groups(torch.ones(8), 8, 1, 1, 1)


def test_what_a_dead_tensor_held_is_read_from_memory_again():
    state = L2State(H100)
    state.read(1, 1024.0)
    state.read(2, 1024.0)
    state.forget(1)
    assert (state.read(1, 1024.0), state.read(2, 1024.0)) == (1024.0, 0.0)


def test_a_vector_is_no_matrix_to_factor():
    vector = TensorMeta((8,), (1,), "float32", 1)
    with pytest.raises(Unpriced, match="1 dimensions"):
        factorisation(MetaCall("linalg_cholesky_ex", "default", (vector,), (vector,), H100))
