"""Functions to patch: a line for each namespace, and for each op that is recorded under another name. Data only; no torch here.

Only functions written in C are replaced, and the few Python methods in `PYTHON`, which call C functions by references of their
own. Functions written in Python, such as torch.nn.functional.relu, keep their identity, on which much of torch relies; they are
recorded as the C functions that they call.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FUNCTIONAL = "torch.nn.functional"


class Namespace(NamedTuple):
    """C functions that are attributes of one object.

    where: the object whose attributes are replaced; module: the module under which users know them; ops: a pattern of the
    attributes that are ops; but: a pattern of exceptions.
    """

    where: str
    module: str
    ops: str = r"[a-z]\w*"
    but: str = ""

    def has(self, name: str) -> bool:
        """Whether the attribute with this name is an op."""
        return bool(re.fullmatch(self.ops, name)) and not (self.but and re.fullmatch(self.but, name))


_PRIVATE_OPS = (
    r"_foreach_\w+|_fused_(adam|adamw|sgd|adagrad|rms_norm)_?|_amp_\w+|_scaled_\w*mm\w*|_scaled_dot_product_\w+|_grouped_mm|_int_mm"
    r"|_weight_\w*mm\w*|_addmm_activation|_safe_softmax|_masked_softmax|_native_multi_head_attention|_transformer_encoder_layer_fwd"
    r"|_transform_bias_rescale_qkv|_convolution|_embedding_bag|_unique2?|_sparse_semi_structured_\w*mm|_cslt_sparse_mm"
    r"|_mixed_dtypes_linear|_dyn_quant_matmul_4bit|_weight_norm|_euclidean_dist|_trilinear|_chunk_cat|_lu_with_info"
    r"|_pack_padded_sequence|_pad_packed_sequence|_standard_gamma|_sample_dirichlet|_dirichlet_grad|_fake_quantize_\w+"
    r"|_fused_moving_avg_obs_fq_helper|_histogramdd_\w+|_segment_reduce|_softmax|_log_softmax"
)

_TORCH_QUERIES = (
    r"(get|set|is|has|init|parse|import|unify|merge|q)_\w+|autocast_\w+|can_cast|promote_types|result_type|clear_autocast_cache|numel"
    r"|fork|wait|from_file|from_numpy|to_dlpack|sym_constrain\w+|cudnn_is_acceptable|align_\w+|int_repr|choose_qparams_optimized"
)

_TENSOR_QUERIES = (
    r"(is|q|has|get|sparse)_(?!softmax|sum)\w+|size|stride|dim|ndimension|numel|nelement|element_size|storage_offset|data_ptr|untyped_storage"
    r"|type|requires_grad_|retain_grad|dense_dim|sym_\w+|__\w+__|names|rename_?|align_\w+|refine_names|has_names|apply_|map_|map2_"
    r"|new|record_stream|set_|new_tensor|swapaxes_?|data|grad|int_repr|numpy|tolist"
)

_TENSOR_OPERATORS = (
    r"__(r?(add|sub|mul|div|truediv|mod|and|or|xor|lshift|rshift|matmul)|i(add|sub|mul|div|truediv|floordiv|mod|and|or|xor|lshift|rshift)"
    r"|eq|ne|lt|le|gt|ge|neg|pos|abs|invert|getitem|setitem)__"
)

# Where one C function has several names, the first line that contains it decides the name that is recorded.
NAMESPACES: tuple[Namespace, ...] = (
    Namespace(FUNCTIONAL, FUNCTIONAL, but=r"has_torch_function\w*"),
    Namespace("torch._C._nn", FUNCTIONAL, r"[a-z]\w*|_upsample_\w+|_pad_\w+|_conv_depthwise2d", r"nested_\w+|pad_sequence"),
    Namespace("torch.linalg", "torch.linalg"),
    Namespace("torch.fft", "torch.fft"),
    Namespace("torch.special", "torch.special"),
    Namespace("torch.sparse", "torch.sparse"),
    Namespace("torch", "torch", rf"[a-z]\w*|{_PRIVATE_OPS}", _TORCH_QUERIES),
    Namespace("torch.Tensor", "Tensor", r"[a-z]\w*", _TENSOR_QUERIES),
    Namespace("torch.Tensor", "Tensor", _TENSOR_OPERATORS),
    # Here torch's C++ looks up what it passes to a `__torch_function__`, and Python functions of torch (torch.einsum, nn.LSTM)
    # look up the C functions that they call.
    Namespace("torch._C._VariableFunctionsClass", "torch", rf"[a-z]\w*|{_PRIVATE_OPS}", _TORCH_QUERIES),
    Namespace("torch._C._linalg", "torch.linalg", r"linalg_[a-z]\w*"),
    Namespace("torch._C._fft", "torch.fft", r"fft_[a-z]\w*"),
    Namespace("torch._C._special", "torch.special", r"special_[a-z]\w*"),
    Namespace("torch._C._sparse", "torch.sparse", r"_?sparse_\w+|_spdiags|_spsolve"),
)

# Methods written in Python that call the C function by a reference of their own, so that nothing below them is recorded.
PYTHON: tuple[tuple[str, str, str], ...] = (("torch.Tensor", "__pow__", "Tensor"), ("torch.Tensor", "__ipow__", "Tensor"))

# Methods of torch.distributed's ProcessGroup in C++ -> the function of torch.distributed that calls them, and the name of each
# positional argument there (as in RENAMED; neither the group, which comes first, nor the options are recorded). These functions
# are written in Python and are not replaced.
COLLECTIVES: dict[str, tuple[str, str]] = {
    "allreduce": ("all_reduce", "-, "),
    "allreduce_coalesced": ("all_reduce_coalesced", "-, "),
    "broadcast": ("broadcast", "-, "),
    "reduce": ("reduce", "-, "),
    "allgather": ("all_gather", "-, , "),
    "allgather_coalesced": ("all_gather", "-, , "),
    "_allgather_base": ("all_gather_into_tensor", "-, , "),
    "all_gather_single": ("all_gather_into_tensor", "-, , "),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor", "-, , "),
    "all_gather_single_coalesced": ("all_gather_into_tensor", "-, , "),
    "reduce_scatter": ("reduce_scatter", "-, , "),
    "_reduce_scatter_base": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_single": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor", "-, , "),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor", "-, , "),
    "alltoall": ("all_to_all", "-, , "),
    "alltoall_base": ("all_to_all_single", "-, , , output_split_sizes, input_split_sizes"),
    "all_to_all_single": ("all_to_all_single", "-, , , output_split_sizes, input_split_sizes"),
    "gather": ("gather", "-, , "),
    "scatter": ("scatter", "-, , "),
    "send": ("send", "-, , dst, tag"),
    "recv": ("recv", "-, , src, tag"),
    "recv_anysource": ("recv", "-, "),
    "barrier": ("barrier", "-"),
    "monitored_barrier": ("monitored_barrier", "-"),
}

# (module, name) of a C function -> the function of torch.nn.functional that users call, and the name of each positional
# argument there: nothing where it has the same position, `-` where that function has no such argument.
RENAMED: dict[tuple[str, str], tuple[str, str]] = {
    (FUNCTIONAL, "cross_entropy_loss"): ("cross_entropy", ", , weight, reduction, ignore_index, label_smoothing"),
    (FUNCTIONAL, "nll_loss_nd"): ("nll_loss", ", , weight, reduction, ignore_index"),
    (FUNCTIONAL, "l1_loss"): ("l1_loss", ", , reduction"),
    (FUNCTIONAL, "mse_loss"): ("mse_loss", ", , reduction"),
    (FUNCTIONAL, "smooth_l1_loss"): ("smooth_l1_loss", ", , reduction, beta"),
    (FUNCTIONAL, "huber_loss"): ("huber_loss", ", , reduction, delta"),
    (FUNCTIONAL, "soft_margin_loss"): ("soft_margin_loss", ", , reduction"),
    (FUNCTIONAL, "binary_cross_entropy"): ("binary_cross_entropy", ", , weight, reduction"),
    ("torch", "binary_cross_entropy_with_logits"): ("binary_cross_entropy_with_logits", ", , weight, pos_weight, reduction"),
    ("torch", "kl_div"): ("kl_div", ", , reduction"),
    ("torch", "ctc_loss"): ("ctc_loss", ", , , , , reduction, zero_infinity"),
    ("torch", "layer_norm"): ("layer_norm", ", , , , , -"),
    ("torch", "group_norm"): ("group_norm", ", , , , , -"),
    ("torch", "rms_norm"): ("rms_norm", ""),
    ("torch", "batch_norm"): ("batch_norm", ", weight, bias, running_mean, running_var, training, momentum, eps, -"),
    ("torch", "instance_norm"): (
        "instance_norm",
        ", weight, bias, running_mean, running_var, use_input_stats, momentum, eps, -",
    ),
    ("torch", "embedding"): ("embedding", "weight, input, padding_idx, scale_grad_by_freq, sparse"),
    ("torch", "dropout"): ("dropout", ""),
    ("torch", "dropout_"): ("dropout", ""),
    ("torch", "max_pool1d"): ("max_pool1d", ""),
    ("torch", "max_pool2d"): ("max_pool2d", ""),
    ("torch", "max_pool3d"): ("max_pool3d", ""),
}
