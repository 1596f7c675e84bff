"""Operators from shapes alone: which unit, how many passes, what the cache saves, what is free."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from drkernel.sim import device
from drkernel.sim.cost.operators import operator_cost, operator_work, synchronises
from drkernel.sim.cost.products import RAW_LAUNCH_SHARE
from drkernel.sim.cost.records import CostEstimate, TensorMeta
from drkernel.sim.cost.roofline import L2State
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.device_journal import MODULE_SHARE
from drkernel.sim.spec import get_spec
from drkernel.verdict import Profile
from tracing import TracedCall, trace

H100, A100 = get_spec("h100"), get_spec("a100")


def meta(*shape: int, dtype: str = "float32", storage: int = 1) -> TensorMeta:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return TensorMeta(tuple(shape), tuple(strides), dtype, storage)


def cost(name: str, inputs: list[TensorMeta], outputs: list[TensorMeta], args=(), spec=H100) -> CostEstimate:
    return operator_cost(name, inputs, outputs, args, spec, L2State(spec))


def empty(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def seconds_of(call: Callable[[], object], spec=H100) -> float:
    return sum(
        operator_cost(item.name, item.inputs, item.outputs, item.args, spec, L2State(spec)).seconds
        for item in trace(call)
        if not item.free
    )


def matmul(m: int, n: int, k: int, dtype: str, spec=H100) -> CostEstimate:
    return cost("mm.default", [meta(m, k, dtype=dtype), meta(k, n, dtype=dtype, storage=2)],
                [meta(m, n, dtype=dtype, storage=3)], spec=spec)  # fmt: skip


# ---- products


@pytest.mark.parametrize("dtype, low, high", [("float16", 600e12, 800e12), ("bfloat16", 600e12, 800e12),
                                              ("float32", 45e12, 60e12)])  # fmt: skip
def test_a_large_product_runs_at_the_class_its_unit_is_known_for(dtype: str, low: float, high: float) -> None:
    result = matmul(4096, 4096, 4096, dtype)
    assert low < 2 * 4096**3 / result.seconds < high
    assert result.bound == "compute"


def test_what_is_added_to_a_product_is_copied_before_unless_it_is_a_bias_or_the_output() -> None:
    a, out = meta(4096, 4096), meta(4096, 4096, storage=3)
    kernels = {
        "linear.default": (cost("linear.default", [a, a, meta(4096, storage=2)], [out]), 1),
        "a bias": (cost("addmm.default", [meta(4096, storage=2), a, a], [out]), 1),
        "a matrix": (cost("addmm.default", [meta(4096, 4096, storage=2), a, a], [out]), 2),
        "in place": (cost("addmm_.default", [out, a, a], [out]), 1),
        "a vector": (cost("addmv.default", [meta(4096, storage=2), a, meta(4096)], [meta(4096, storage=3)]), 2),
    }
    assert {name: one.kernels for name, (one, _) in kernels.items()} == {name: n for name, (_, n) in kernels.items()}


def test_fp32_products_stay_off_the_tensor_cores_and_fp32_convolutions_use_them() -> None:
    assert set(matmul(1024, 1024, 1024, "float32").flops) == {"fp32"}
    x, w = empty(32, 256, 56, 56), empty(256, 256, 3, 3)
    (call,) = [item for item in trace(lambda: F.conv2d(x, w, padding=1)) if not item.free]
    units = {
        unit for work in operator_work(call.name, call.inputs, call.outputs, call.args, H100) for unit in work.flops
    }
    assert "tensor_tf32" in units


def test_skinny_products_are_bound_by_memory() -> None:
    result = cost("mv.default", [meta(65536, 8192), meta(8192, storage=2)], [meta(65536, storage=3)])
    assert result.bound == "memory"
    assert 65536 * 8192 * 4 / result.seconds > 0.8 * H100.dram_bandwidth


def test_one_tile_more_than_a_wave_costs_a_wave() -> None:
    full, over = (matmul(128 * n, 128, 65536, "float32").seconds for n in (132, 133))
    assert over > 1.02 * full


def test_splitting_k_keeps_small_outputs_from_idling_the_device() -> None:
    assert matmul(128, 128, 2**18, "float16").seconds < 0.1 * matmul(128 * 132, 128, 2**18, "float16").seconds * 132


# ---- memory


def test_elementwise_operators_run_at_memory_speed_however_heavy() -> None:
    big = meta(2**28)
    light, heavy = (cost(name, [big], [meta(2**28, storage=2)]) for name in ("relu.default", "gelu.default"))
    assert light.seconds == pytest.approx(heavy.seconds, rel=0.05)
    assert 2 * big.nbytes / light.seconds == pytest.approx(H100.dram_bandwidth, rel=0.05)


def test_an_operand_used_twice_is_read_once() -> None:
    x, y, out = meta(2**28), meta(2**28, storage=2), meta(2**28, storage=3)
    assert cost("mul.Tensor", [x, x], [out]).seconds == pytest.approx(
        2 / 3 * cost("mul.Tensor", [x, y], [out]).seconds, rel=0.02
    )


def test_broadcasts_and_transposes_cost_more_than_flat_copies_of_as_many_bytes() -> None:
    flat = cost("add.Tensor", [meta(8192, 8192), meta(8192, 8192, storage=2)], [meta(8192, 8192, storage=3)]).seconds
    column = cost("add.Tensor", [meta(8192, 8192), meta(8192, 1, storage=2)], [meta(8192, 8192, storage=3)]).seconds
    assert flat > column > 0.75 * flat  # a third fewer bytes, at fewer bytes per second
    transposed = TensorMeta((8192, 8192), (1, 8192), "float32", 1)
    assert (
        cost("clone.default", [transposed], [meta(8192, 8192, storage=2)]).seconds
        > 1.5 * cost("clone.default", [meta(8192, 8192)], [meta(8192, 8192, storage=2)]).seconds
    )


def test_a_chain_that_fits_in_l2_reads_device_memory_once() -> None:
    l2 = L2State(H100)
    first = operator_cost("relu.default", [meta(2**20)], [meta(2**20, storage=2)], (), H100, l2)
    second = operator_cost("relu.default", [meta(2**20, storage=2)], [meta(2**20, storage=3)], (), H100, l2)
    assert second.dram_bytes == 2**22  # what is written goes to device memory, too
    assert first.dram_bytes == 2**23 + 2**21  # and a quarter of the lines that the first one takes were dirty
    assert second.seconds < first.seconds


def test_softmax_reads_long_rows_three_times_and_short_ones_once() -> None:
    def passes(rows: int, columns: int) -> float:
        x = meta(rows, columns)
        return cost("_softmax.default", [x], [meta(rows, columns, storage=2)], (None, -1, False)).dram_bytes / x.nbytes

    assert passes(2**18, 1024) == pytest.approx(2, abs=0.1)
    assert passes(2**10, 2**20) == pytest.approx(4, abs=0.2)


def test_layer_norm_over_few_long_rows_is_slow_for_want_of_blocks() -> None:
    few = seconds_of(lambda: F.layer_norm(empty(16, 2**22), [2**22]))
    many = seconds_of(lambda: F.layer_norm(empty(2**16, 2**10), [2**10]))
    assert few > 10 * many


def test_training_statistics_cost_batch_norm_a_pass() -> None:
    bn = torch.nn.BatchNorm2d(256, device="meta")
    x = empty(64, 256, 64, 64)
    training = seconds_of(lambda: bn(x))
    bn.eval()
    assert training > 1.4 * seconds_of(lambda: bn(x))


def test_a_strided_transposed_convolution_pays_for_its_layouts_and_few_channels_leave_the_tensor_cores() -> None:
    wide = seconds_of(lambda: F.conv2d(empty(16, 64, 128, 128), empty(64, 64, 3, 3)))
    odd = seconds_of(lambda: F.conv2d(empty(16, 63, 128, 128), empty(64, 63, 3, 3)))
    assert odd > 2 * wide
    plain = seconds_of(lambda: F.conv_transpose2d(empty(16, 64, 128, 128), empty(64, 64, 3, 3)))
    strided = seconds_of(lambda: F.conv_transpose2d(empty(16, 64, 128, 128), empty(64, 64, 3, 3), stride=2))
    assert strided > plain


def gradient_of_volumes(channels: int, results: int, kernel: int, stride: int = 1, spec=H100) -> float:
    """Seconds of a transposed convolution of 8 volumes of 32 x 32 x 32."""
    call = F.conv_transpose3d
    return seconds_of(
        lambda: call(empty(8, channels, 32, 32, 32), empty(channels, results, *[kernel] * 3), stride=stride), spec
    )


def test_gradients_of_volumes_that_no_special_kernel_takes_are_padded_and_multiply_zeros() -> None:
    """On Hopper, with TF32: channels that are no whole groups of 32, or many taps (KernelBench's published times)."""
    odd, whole, wide = (gradient_of_volumes(48, results, 3) for results in (48, 64, 128))
    assert odd > 2.5 * whole
    assert odd > 1.4 * wide  # whole groups of channels, and twice as many, take less
    assert gradient_of_volumes(48, 24, 3) == pytest.approx(odd, rel=0.1)
    assert gradient_of_volumes(32, 64, 5) > 2.5 * gradient_of_volumes(32, 64, 4) * 125 / 64
    assert gradient_of_volumes(32, 64, 5, 2) > 6.0 * gradient_of_volumes(32, 64, 5)  # as many outputs more, and zeros
    assert gradient_of_volumes(48, 48, 3, 2) < 1.2 * gradient_of_volumes(48, 64, 3, 2)  # strided kernels take any group
    assert gradient_of_volumes(48, 48, 3, spec=A100) < 1.2 * gradient_of_volumes(48, 64, 3, spec=A100)


def test_windows_issue_as_fast_on_cards_with_half_the_lanes_for_fp32() -> None:
    """Mixed arithmetic of indices and numbers fills an A100's issue slots (published: 1.6 times an H100's time)."""
    times = [seconds_of(lambda: F.max_pool3d(empty(16, 32, 64, 64, 16), 3, 1), spec) for spec in (H100, A100)]
    assert 1.3 < times[1] / times[0] < 1.7


def test_an_a100_puts_convolutions_of_three_channels_on_tensor_cores() -> None:
    call = lambda: F.conv3d(empty(16, 3, 64, 64, 64), empty(64, 3, 3, 5, 7))  # noqa: E731
    flops = 2.0 * 16 * 62 * 60 * 58 * 64 * 315
    assert flops / seconds_of(call, H100) < H100.peak["fp32"] / 2
    assert flops / seconds_of(call, A100) > 0.8 * A100.peak["fp32"]


def test_empty_tensors_cost_nothing() -> None:
    assert cost("add.Tensor", [meta(0, 5)], [meta(0, 5)]).seconds == 0


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="no size of dtype 'float3'"):
        meta(4, dtype="float3")


# ---- tracing


def names(calls: list[TracedCall]) -> list[str]:
    return [item.name.partition(".")[0] for item in calls if not item.free]


def test_views_and_allocations_are_free_and_in_place_work_is_not() -> None:
    x = empty(64, 64)
    calls = trace(lambda: (x.t().unsqueeze(0).expand(4, 64, 64).select(0, 1), torch.empty(5, device="meta"), x.add_(1)))
    assert names(calls) == ["add_"]


def test_library_calls_of_cuda_are_not_decomposed() -> None:
    lstm = torch.nn.LSTM(32, 64, num_layers=2, batch_first=True, device="meta")
    x = empty(8, 100, 32)
    assert names(trace(lambda: lstm(x)[0]))[-1] == "lstm"
    q = empty(2, 8, 256, 64, dtype=torch.float16)
    assert names(trace(lambda: F.scaled_dot_product_attention(q, q, q))) == [
        "_scaled_dot_product_flash_attention_for_cpu"
    ]
    q = empty(2, 8, 256, 64)
    assert names(trace(lambda: F.scaled_dot_product_attention(q, q, q))) == [
        "_scaled_dot_product_flash_attention_for_cpu"
    ]
    assert names(trace(lambda: F.dropout(q, 0.5, True))) == ["native_dropout"]
    block = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, device="meta")
    traced = names(trace(lambda: block(empty(10, 2, 64))))
    assert "_scaled_dot_product_flash_attention_for_cpu" in traced and "bmm" not in traced
    assert F.dropout(torch.ones(4), 0.5, True).device.type == "cpu"  # nothing stays replaced


def test_tracing_gives_the_module_its_own_shapes() -> None:
    gru = torch.nn.GRU(32, 64, bidirectional=True)
    x = torch.randn(10, 4, 32)
    expected = [tuple(item.shape) for item in gru(x)]
    shapes: list[tuple[int, ...]] = []
    gru.to("meta")
    trace(lambda: shapes.extend(tuple(item.shape) for item in gru(x.to("meta"))))
    assert shapes == expected
    q = torch.randn(2, 3, 5, 8)
    real = F.scaled_dot_product_attention(q, q, q)
    trace(lambda: shapes.append(tuple(F.scaled_dot_product_attention(*[q.to("meta")] * 3).shape)))
    assert shapes[-1] == tuple(real.shape)


def profile_of(model: Callable[..., torch.Tensor], *shape: int, calls: int = 1) -> Profile:
    """Calls of a module on a device without data."""
    with device("h100", data_free=DataFree()) as dev, torch.device("cuda"), torch.no_grad():
        model = model.cuda() if isinstance(model, torch.nn.Module) else model
        x = torch.empty(*shape)
        dev.reset_counters()
        for _ in range(calls):
            model(x)
        return dev.profile()


def test_a_module_is_modelled_from_shapes_alone_and_warm_calls_are_cheaper_on_the_device() -> None:
    models = (torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(2))
    once, twice = (profile_of(model, 4, 2048, calls=calls) for calls, model in enumerate(models, 1))
    assert {row.name for row in once.rows} == {"aten.addmm", "aten.relu"}
    assert once.kind == "modelled" and once.device == "sim:h100" and once.coverage == 0
    assert sum(row.share for row in once.rows) == pytest.approx(1)
    assert twice.total_seconds < 1.9 * once.total_seconds  # weights are still in L2


@pytest.mark.parametrize("filled", [0, 64 << 20])
def test_what_the_device_still_does_hides_the_host_of_the_next_call(filled: int) -> None:
    with device("h100", data_free=DataFree()), torch.device("cuda"):
        x, start, end = torch.empty(8), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.empty(filled, dtype=torch.int32).fill_(42)
        start.record()
        torch.relu(x)
        end.record()
        torch.cuda.synchronize()
    assert (start.elapsed_time(end) * 1e-3 > H100.launch_overhead) == (not filled)


def test_a_chain_of_small_operators_is_bound_by_the_host() -> None:
    short, long = (profile_of(torch.relu, 8, calls=calls) for calls in (200, 400))
    assert long.elapsed_seconds - short.elapsed_seconds == pytest.approx(200 * H100.launch_overhead)
    assert long.elapsed_seconds > 2 * long.total_seconds


def test_calls_of_modules_take_the_host_time_and_calls_of_functions_do_not() -> None:
    layers, launch = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(100)]), H100.launch_overhead
    alone = profile_of(lambda x: [torch.relu(x) for _ in range(300)][-1], 8).elapsed_seconds
    called = profile_of(lambda x: [layers(x) for _ in range(3)][-1], 8).elapsed_seconds
    assert called - alone == pytest.approx(3 * (1 + 100) * MODULE_SHARE * launch)
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_each_kernel_of_an_operator_is_launched_by_the_host() -> None:
    def of_one(call: Callable[..., torch.Tensor]) -> float:
        few, many = (profile_of(call, 8, 8, calls=calls) for calls in (100, 200))
        return (many.elapsed_seconds - few.elapsed_seconds) / 100

    kernels = len(operator_work("logsumexp", [meta(8, 8)], [meta(8)], [meta(8, 8), [1]], H100))
    assert kernels > 5
    assert of_one(torch.exp) == pytest.approx(H100.launch_overhead)
    of_all = H100.launch_overhead * (1 + RAW_LAUNCH_SHARE * (kernels - 1))
    assert of_one(lambda x: torch.logsumexp(x, 1)) == pytest.approx(of_all)


# ---- by the rules of the library


def test_a_reduction_to_one_number_is_one_block_until_each_thread_has_256_elements() -> None:
    def of(elements: int, name: str = "sum.default") -> float:
        return cost(name, [meta(elements)], [meta(storage=2)], spec=get_spec("a100")).seconds

    rounds = [of(n) for n in (1 << 15, 1 << 16)]
    assert (rounds[1] - rounds[0]) / 16 == pytest.approx(get_spec("a100").dram_latency, rel=0.1)  # of 2,048 elements
    assert of((1 << 17) - 2048) > 2 * of(1 << 17)  # divided over blocks from there on
    whole = [of(1 << n) for n in range(17, 28)]
    assert all(after > 0.999 * before for before, after in pairwise(whole))


def test_a_mask_with_one_value_fills_and_one_with_many_is_counted_and_waited_for() -> None:
    x, mask = meta(1 << 20), meta(1 << 20, dtype="bool", storage=2)
    fill = [x, mask, meta(storage=3)]
    write = [x, mask, meta(1 << 19, storage=3)]
    assert not synchronises("index_put_.default", fill) and synchronises("index_put_.default", write)
    assert synchronises("index.Tensor", [x, mask])
    filled, written = (cost("index_put_.default", inputs, [x]).seconds for inputs in (fill, write))
    assert filled == cost("masked_fill_.Scalar", [x, mask], [x]).seconds < written


def test_gradients_of_group_norm_wait_for_a_block_a_row() -> None:
    def of(channels: int, length: int) -> float:
        x = meta(64, channels, length)
        moments = meta(64 * channels // 4, storage=4)
        given = [meta(64, channels, length, storage=2), x, moments, moments, meta(channels, storage=5)]
        arguments = (None, None, None, None, None, 64, channels, length, channels // 4, [True] * 3)
        return cost(
            "native_group_norm_backward.default", given, [meta(64, channels, length, storage=3)], arguments
        ).seconds

    short, long = of(2048, 512), of(16, 512 * 128)
    assert short > 1.2 * long  # of the same bytes


def test_a_loss_over_rows_that_one_block_sums_waits_twice_for_each_of_its_rounds() -> None:
    def of(rows: int) -> float:
        given = [meta(rows, 16), meta(rows, dtype="int64", storage=2)]
        return cost("nll_loss_forward.default", given, [meta(storage=3)], (None, None, None, 1, -100)).seconds

    rounds = (of(64 * 1024) - of(32 * 1024)) / 32  # of 1,024 threads
    assert H100.dram_latency + H100.l2_latency < rounds < 2 * (H100.dram_latency + H100.l2_latency)
