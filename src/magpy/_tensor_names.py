"""Names of torch's functions, by what a call of one means to a record: the tables that the rules for tensors look into."""

from __future__ import annotations

from typing import Final

COVERED: Final = frozenset(
    {
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "get_device", "dense_dim", "sparse_dim",
        "is_complex", "is_conj", "is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_signed", "__len__",
        "is_same_size", "is_distributed", "can_cast", "promote_types", "result_type", "_is_zerotensor", "type", "_dimI",
        "_dimV", "shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "requires_grad", "is_cpu", "is_cuda",
        "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse",
        "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "volatile", "_has_symbolic_sizes_strides", "_python_dispatch",
        "is_vulkan_available", "_nnpack_available", "cudnn_is_acceptable", "_use_cudnn_rnn_flatten_weight", "_parse_to",
        "_has_compatible_shallow_copy_type",
    }
)  # fmt: skip
"""Metadata that follow from what a tensor guard compares: type, dtype, device, layout, sizes, strides, dispatch keys."""

SINGLE: Final = frozenset(
    {
        "storage_offset", "is_leaf", "retains_grad", "output_nr", "name", "grad", "_grad", "_backward_hooks", "grad_dtype",
        "_post_accumulate_grad_hooks", "grad_fn", "_grad_fn", "is_pinned", "_is_view", "is_coalesced",
    }
)  # fmt: skip
"""Metadata that become facts of their own."""


SHAPED_BY_VALUES: Final = frozenset(
    {
        "__getitem__", "nonzero", "argwhere", "masked_select", "bincount", "repeat_interleave", "one_hot", "where",
        "unique_consecutive", "unique_dim", "_unique", "_unique2",
    }
)  # fmt: skip
"""Operators whose results' shapes, but not ranks or number, depend on values: they stay in the graph as long as Python
code does not ask for the shape."""

COUNTED_BY_SHAPE: Final = frozenset(
    {"unbind", "split", "chunk", "tensor_split", "split_with_sizes", "hsplit", "vsplit", "dsplit", "unsafe_split",
     "unsafe_chunk", "unsafe_split_with_sizes", "size", "stride"}
)  # fmt: skip
"""Operators whose number of results, and metadata whose length, follows from sizes or ranks."""

RANK: Final = frozenset({"dim", "ndimension", "Tensor.ndim"})
"""Metadata that depend on the number of dimensions alone."""

TYPES: Final = frozenset(
    {"is_floating_point", "is_complex", "is_signed", "get_device", "is_conj", "is_neg", "element_size", "is_inference",
     "can_cast", "result_type", "promote_types"}
    | {f"Tensor.{name}" for name in (
        "dtype", "device", "layout", "requires_grad", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "is_meta", "is_mps",
        "is_xla", "is_xpu", "is_nested", "is_mkldnn", "itemsize", "is_leaf", "grad_fn", "grad", "_backward_hooks",
    )}
)  # fmt: skip
"""Metadata that do not depend on sizes."""

REDUCTIONS: Final = frozenset(
    {"sum", "mean", "prod", "max", "min", "amax", "amin", "norm", "linalg_vector_norm", "any", "all", "std", "var", "median"}
)  # fmt: skip
"""Operators that give one number when they are called on a tensor alone."""
