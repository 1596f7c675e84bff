"""The ATen operators that the device runs, by name. All others are refused.

An operator is listed when it has a kernel of its own that is safe on any arguments: by itself, or after the checks of
``argument_checks.py`` and ``index_checks.py``. ``benchmarks/fuzz_device.py`` tries to refute this. Composite operators,
which PyTorch decomposes before they reach a GPU, are not listed: the host decomposes them, so that each part is counted
and priced. The exceptions are library calls, which a GPU runs whole.
"""


def names(text: str) -> frozenset[str]:
    """Operator names separated by white space."""
    return frozenset(text.split())


PUBLIC = names(
    """
    abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_avg_pool3d_backward
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward add addbmm addcdiv
    addcmul addmm addmv addr affine_grid_generator alias alias_copy all amax amin aminmax angle any arange argmax argmin
    as_strided as_strided_copy as_strided_scatter asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool2d_backward
    avg_pool3d avg_pool3d_backward baddbmm bartlett_window bernoulli binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor blackman_window block_diag bmm bucketize cat cauchy ceil celu channel_shuffle
    cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min clone col2im complex conj_physical
    constant_pad_nd conv_tbc convolution convolution_backward copy copysign cos cosh count_nonzero cummax cummin cumprod
    cumsum deg2rad detach detach_copy diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter digamma dist
    div dot elu elu_backward embedding embedding_dense_backward embedding_renorm empty empty_like empty_permuted
    empty_strided eq equal erf erfc erfinv exp exp2 expand expand_copy expm1 exponential eye
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask fft_fftfreq fft_rfftfreq fill
    flip floor floor_divide fmax fmin fmod frac fractional_max_pool2d fractional_max_pool2d_backward
    fractional_max_pool3d fractional_max_pool3d_backward frexp full full_like gather gcd ge gelu gelu_backward geometric
    geqrf glu glu_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward gt
    hamming_window hann_window hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward heaviside histc huber_loss huber_loss_backward hypot i0
    igamma igammac im2col index index_add index_copy index_fill index_put index_reduce index_select is_same_size
    is_set_to isin isinf isnan isneginf isposinf kaiser_window kthvalue lcm ldexp le leaky_relu leaky_relu_backward lerp
    lgamma lift_fresh linalg__powsum linalg_cholesky_ex linalg_cross linalg_eig linalg_eigvals
    linalg_householder_product linalg_inv_ex linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve
    linalg_matrix_exp linalg_pinv linalg_qr linalg_solve_triangular linalg_vector_norm linear linspace log log10 log1p
    log2 log_normal log_sigmoid_backward log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp logical_and
    logical_not logical_or logical_xor logit logit_backward logspace logsumexp lt lu_unpack masked_fill masked_scatter
    masked_scatter_backward masked_select max max_pool2d_with_indices max_pool2d_with_indices_backward
    max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d max_unpool3d maximum mean median min minimum
    mish mish_backward mm mode mse_loss mse_loss_backward mul multi_margin_loss multi_margin_loss_backward
    multilabel_margin_loss_backward multilabel_margin_loss_forward multinomial mv mvlgamma nan_to_num nanmedian nansum
    narrow_copy native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg new_empty new_empty_strided new_full
    new_ones new_zeros nextafter nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero
    nonzero_static norm normal normal_functional ones ones_like ormqr permute permute_copy pixel_shuffle pixel_unshuffle
    poisson polar polygamma pow prod put rad2deg rand rand_like randint randint_like randn randn_like random randperm
    range reciprocal reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
    reflection_pad3d reflection_pad3d_backward relu remainder renorm repeat repeat_interleave replication_pad1d
    replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d replication_pad3d_backward
    roll rot90 round rrelu_with_noise rrelu_with_noise_backward rrelu_with_noise_functional rsqrt rsub scalar_tensor
    scatter scatter_add scatter_reduce searchsorted segment_reduce select select_backward select_copy select_scatter sgn
    sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh slice slice_backward slice_copy slice_scatter
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softmax softplus softplus_backward softshrink
    softshrink_backward sort special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py special_zeta split split_copy
    split_with_sizes split_with_sizes_copy sqrt squeeze squeeze_copy stack std std_mean sub sum t t_copy take tan tanh
    tanh_backward threshold threshold_backward topk trace transpose transpose_copy triangular_solve tril tril_indices
    triu triu_indices trunc unbind unbind_copy unfold unfold_backward unfold_copy uniform unique_consecutive unique_dim
    unique_dim_consecutive unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d
    upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d
    upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
    upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d
    upsample_trilinear3d_backward var var_mean vdot view view_as_complex view_as_real view_copy where xlogy zero zeros
    zeros_like
    """
)
"""Public operators, with and without the underscore at the end that says in-place."""

MULTI_TENSOR = names(
    """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp
    lgamma log log10 log1p log2 max maximum minimum mul neg norm pow powsum reciprocal round rsqrt sigmoid sign sin sinh
    sqrt sub tan tanh trunc zero
    """
)
"""what optimisers do to lists of tensors, as ``_foreach_*``"""

INTERNAL = frozenset(f"_foreach_{name}{end}" for name in MULTI_TENSOR for end in ("", "_")) | names(
    """
    __ilshift__ __irshift__ __lshift__ __rshift__ _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
    _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _addmm_activation _amp_foreach_non_finite_check_and_unscale_
    _amp_update_scale_ _cdist_backward _cdist_forward _conj _conj_physical _convolution _ctc_loss _ctc_loss_backward
    _dirichlet_grad _embedding_bag _embedding_bag_backward _embedding_bag_forward_only
    _embedding_bag_per_sample_weights_backward _euclidean_dist _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    _fft_c2c _fft_c2r _fft_r2c _foreach_copy_ _has_same_storage_numel _new_zeros_with_same_feature_meta _fused_adagrad_
    _fused_adam_ _fused_adamw_ _fused_rms_norm_backward _fused_sgd_ _grouped_mm _index_put_impl_ _int_mm _is_all_true
    _is_any_true _linalg_check_errors _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _pdist_backward _pdist_forward
    _prelu_kernel _prelu_kernel_backward _reshape_alias _safe_softmax _sample_dirichlet
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _scaled_mm
    _segment_reduce_backward _softmax _softmax_backward_data _standard_gamma _to_copy _trilinear _unique _unique2
    _unsafe_view _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward _weight_norm_interface _weight_norm_interface_backward resize_ resize_as_
    """
)
"""Operators that begin with an underscore, allowed under exactly these names."""

LIBRARY_CALLS = names(
    """
    lstm.input gru.input rnn_tanh.input rnn_relu.input _fused_rms_norm.default silu_backward.default
    mish_backward.default
    """
)
"""Overloads that other backends take apart and a GPU runs whole: by cuDNN, or by kernels of PyTorch's CUDA build."""

FREE_OPERATORS = names(
    """
    empty new_empty empty_like empty_strided new_empty_strided empty_permuted detach alias view _unsafe_view reshape
    _reshape_alias expand permute t transpose select slice squeeze unsqueeze as_strided unbind split
    split_with_sizes chunk diagonal unfold lift_fresh sym_size sym_stride is_same_size
    """
)
"""Operators that move no data on a GPU, for tracers that see no storages. The device looks at storages instead."""

METADATA_OPERATORS = names(
    """
    t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_ sym_size sym_stride sym_numel
    sym_storage_offset is_same_size is_set_to _has_same_storage_numel
    """
)
"""Operators that look at, or change, a tensor's form and never its elements."""

FACTORIES = names(
    """
    empty zeros ones full rand randn randint normal empty_strided empty_permuted randperm
    bartlett_window blackman_window hamming_window hann_window kaiser_window fft_fftfreq fft_rfftfreq
    """
)
"""Operators whose first argument is the size of what they make."""

ALLOCATORS = names("empty new_empty empty_like empty_strided new_empty_strided empty_permuted")
"""Operators whose result holds nothing yet."""

SIZED_BY_DATA = names(
    """
    nonzero masked_select unique_consecutive unique_dim unique_dim_consecutive bincount repeat_interleave _unique
    _unique2 index
    """
)
"""Operators whose result's shape depends on values: the host learns it, so a GPU waits for it."""

TELLS_A_FLAG = names("equal _linalg_check_errors")
"""Operators whose answer, or whose error, tells the host one bit about values."""

BY_FORM = names("rand_like randn_like randint_like zeros_like ones_like full_like new_zeros new_ones new_full")
"""make a tensor like another one, of which they do not read the values"""

ON_FLOATS = {
    **dict.fromkeys(names("mm addmm _addmm_activation addbmm linear"), "addmm_cuda"),
    **dict.fromkeys(names("bmm baddbmm"), "baddbmm_cuda"), **dict.fromkeys(names("mv addmv"), "addmv_impl_cuda"),
    "dot": "dot", "vdot": "vdot", **dict.fromkeys(names("convolution _convolution"), "slow_conv2d_cuda"),
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame", "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame", "avg_pool3d": "avg_pool3d_out_frame",
}  # fmt: skip
"""Operators for which the CPU takes integers and CUDA does not -> the name of CUDA's kernel."""
