"""What each torch function is to the operator graph, where a rule does not say it: the explicit lists, by kind.

A name stands for the function of that name in ``torch``, ``torch.nn``'s C part and ``Tensor`` alike; the prefixes
``linalg_``, ``fft_`` and ``special_`` belong to it. A getter's name starts with a dot.

What is on no list is an operator if ``aten`` has it and every form of it that takes a tensor returns tensors only.
"""

from __future__ import annotations

from magpy_annotations._model import OpKind

# Fixed by a tensor's metadata: sizes, strides, types, flags, structure.
METADATA = """
    size stride dim ndimension numel nelement storage_offset element_size get_device dense_dim sparse_dim _dimI _dimV
    is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_pinned is_same_size
    is_signed is_coalesced _is_zerotensor _is_view __len__ qscheme q_per_channel_axis _nested_get_ragged_idx
    cudnn_is_acceptable can_cast promote_types result_type is_vulkan_available _nnpack_available
    _debug_has_internal_overlap _has_compatible_shallow_copy_type _use_cudnn_rnn_flatten_weight _parse_to .shape
    .dtype .device .layout .ndim .itemsize .nbytes .is_leaf .requires_grad .retains_grad .volatile .output_nr .name
    .is_cpu .is_cuda .is_ipu .is_maia .is_meta .is_mkldnn .is_mps .is_mtia .is_nested .is_quantized .is_sparse
    .is_sparse_csr .is_vulkan .is_xla .is_xpu ._has_symbolic_sizes_strides ._python_dispatch .grad_dtype .grad ._grad
    ._backward_hooks ._post_accumulate_grad_hooks
"""

# Hands Python what was read from data, or from something that no guard looks at.
VALUE = """
    item tolist numpy __bool__ __nonzero__ __int__ __long__ __float__ __complex__ __index__ equal allclose is_nonzero
    _nnz _choose_qparams_per_tensor fbgemm_linear_quantize_weight q_scale q_zero_point
    _nested_tensor_from_mask_left_aligned _use_cudnn_ctc_loss _use_miopen_ctc_loss
"""

# Tensors whose shape, or whose number of stored values, depends on data.
DYNAMIC_SHAPE = """
    nonzero argwhere masked_select bincount repeat_interleave one_hot unique_consecutive unique_dim _unique _unique2
    linalg_lstsq _ctc_loss coalesce _coalesce indices _indices values _values crow_indices col_indices ccol_indices
    row_indices to_sparse _to_sparse to_sparse_csr _to_sparse_csr to_sparse_csc _to_sparse_csc to_sparse_bsr
    _to_sparse_bsr to_sparse_bsc _to_sparse_bsc sparse_mask _sparse_mask_projection _pack_padded_sequence
    _pad_packed_sequence _nested_tensor_from_mask segment_reduce _nested_tensor_strides nested_to_padded_tensor
    to_padded_tensor
"""

# Writes an attribute of a tensor, not its data. `.name=` stands for the setter of an attribute.
SETTER = """
    requires_grad_ detach_ .data= .grad= ._grad= .requires_grad= ._backward_hooks= .grad_dtype=
    ._post_accumulate_grad_hooks= ._python_dispatch=
"""

# Never in a graph: addresses, shared memory, autograd's own objects, user code, other languages' parsers.
IMPURE = """
    data_ptr const_data_ptr untyped_storage apply_ map_ map2_ _use_count _view_func _view_func_unsafe
    _rev_view_func_unsafe _fix_weakref as_subclass _make_subclass _make_wrapper_subclass _dtensor__new__ from_numpy
    frombuffer asarray from_file _from_blob _print record_stream set_ resize_ resize_as_ resize_as_sparse_
    sparse_resize_ sparse_resize_and_clear_ _resize_output_ is_set_to _lazy_clone _make_dep_token
    _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size _cufft_clear_plan_cache
    _fused_sdp_choice _cslt_sparse_mm_search type __delitem__ __new__ _functional_sym_constrain_range
    sym_constrain_range sym_constrain_range_for_size _functional_assert_async _assert_async
    _functional_sym_constrain_range_for_size _assert_scalar _functional_assert_scalar _assert_tensor_metadata
    _cudnn_init_dropout_state ipu mtia xpu _propagate_xla_data retain_grad .data .grad_fn ._grad_fn ._base ._cdata
    ._version
"""

# Operators that `aten` does not have under their own name, or whose forms return more than tensors.
OPERATOR = """
    .T .H .mT .mH .real .imag eq ne __add__ __radd__ __sub__ __mul__ __rmul__ __div__ __truediv__ __floordiv__ __mod__
    __matmul__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__
    __rshift__ __invert__ __getitem__ bfloat16 bool byte cdouble cfloat char double float half int long short cpu cuda
    dsmm hsmm saddmm spmm new new_tensor tensor nested_tensor conv_tbc as_tensor _batch_norm_impl_index
    _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention dequantize
"""

# In place without saying so in the name.
INPLACE = """
    __setitem__ __iadd__ __isub__ __imul__ __idiv__ __ifloordiv__ __imod__ __iand__ __ior__ __ixor__ __ilshift__
    __irshift__ .real= .imag=
"""

# Draw random numbers, at least with some arguments, and are not tagged so.
RANDOM = """
    rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial poisson binomial
    dropout alpha_dropout feature_alpha_dropout feature_dropout native_dropout rrelu rrelu_with_noise
    scaled_dot_product_attention lstm gru rnn_tanh rnn_relu random_ uniform_ normal_ log_normal_ exponential_ cauchy_
    geometric_ bernoulli_ _sample_dirichlet _standard_gamma _fused_dropout fractional_max_pool2d fractional_max_pool3d
    _philox_normal_ _philox_uniform_ _sobol_engine_draw
"""

# Arguments that are updated although the schema does not mark them.
MUTATES = {
    "batch_norm": ("running_mean", "running_var"),
    "instance_norm": ("running_mean", "running_var"),
    "native_batch_norm": ("running_mean", "running_var"),
    "_native_batch_norm_legit": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
    "_batch_norm_impl_index": ("running_mean", "running_var"),
    "_batch_norm_with_update": ("running_mean", "running_var"),
    "batch_norm_update_stats": ("running_mean", "running_var"),
    "batch_norm_gather_stats": ("running_mean", "running_var"),
    "batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
    "rrelu_with_noise": ("noise",),
    "rrelu_with_noise_": ("noise",),
}

EXPLICIT = {
    name: kind
    for kind, names in (
        (OpKind.OPERATOR, OPERATOR),
        (OpKind.INPLACE, INPLACE),
        (OpKind.METADATA, METADATA),
        (OpKind.VALUE, VALUE),
        (OpKind.DYNAMIC_SHAPE, DYNAMIC_SHAPE),
        (OpKind.SETTER, SETTER),
        (OpKind.IMPURE, IMPURE),
    )
    for name in names.split()
}

RANDOM_NAMES = frozenset(RANDOM.split())
