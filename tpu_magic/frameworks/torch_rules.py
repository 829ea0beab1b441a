"""How torch functions treat operands of two places: a table of names, looked up once each."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    """What a torch function does with the place of its operands."""

    PASSIVE = auto()  # asks a tensor about itself: called as it is
    READ = auto()  # reads its value into Python
    COMPUTE = auto()  # computes; follows an operand that is on the device
    HEAVY = auto()  # worth the device even when every operand is on the host
    PACKED = auto()  # packs sequences, whose lengths would make each batch another program
    RECURRENT = auto()  # HEAVY; of packed sequences, as PACKED
    JOIN = auto()  # computes one tensor of a list of them
    HOST = auto()  # has no kernel on the device, nor operands that could be there
    FACTORY = auto()  # makes a tensor of nothing
    LIKE = auto()  # makes or draws a tensor like its first operand
    DRAW = auto()  # fills its first operand with random numbers
    VIEW = auto()  # gives the same values another shape or type
    INPLACE = auto()  # writes to its first operand
    GETITEM = auto()
    SETITEM = auto()
    TO = auto()  # names a place
    NUMPY = auto()  # hands the memory to numpy
    BACKWARD = auto()


_NAMES: dict[Kind, str] = {
    Kind.PASSIVE: """
        __get__ __delete__ size dim ndimension numel nelement stride storage_offset __len__
        element_size untyped_storage storage data_ptr has_names __hash__ is_floating_point
        is_complex is_contiguous is_pinned is_shared is_signed is_inference is_conj
        is_neg is_same_size is_coalesced get_device result_type can_cast promote_types
        __repr__ __format__ __deepcopy__ __copy__ __reduce_ex__ __reduce__ __setstate__ __dir__
        __contains__
        retain_grad register_hook register_post_accumulate_grad_hook remove_hook
        requires_grad_ share_memory_ pin_memory names rename is_tensor is_storage type_as_string
        get_default_dtype set_default_dtype __cuda_array_interface__ __dlpack__ __dlpack_device__
        _is_view _use_count set_ resize_ record_stream device
        _record_function_enter_new _record_function_exit._RecordFunction""",
    Kind.READ: "__bool__ __float__ __int__ __index__ __complex__ item tolist is_nonzero",
    Kind.HEAVY: """
        matmul __matmul__ __rmatmul__ mm bmm mv addmm addmv addbmm baddbmm dot vdot inner einsum
        tensordot chain_matmul kron linear bilinear conv1d conv2d conv3d conv_transpose1d
        conv_transpose2d conv_transpose3d convolution conv_tbc scaled_dot_product_attention
        multi_head_attention_forward cdist pdist svd qr inverse pinverse
        det logdet slogdet cholesky cholesky_solve cholesky_inverse lu lu_solve triangular_solve
        matrix_exp matrix_power lstsq cov corrcoef interpolate grid_sample stft istft fold unfold
        max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d
        batch_norm layer_norm group_norm instance_norm embedding_bag""",
    Kind.PACKED: "_pack_padded_sequence _pad_packed_sequence",
    Kind.RECURRENT: "lstm gru rnn_tanh rnn_relu",
    Kind.JOIN: "cat concat concatenate stack vstack hstack dstack row_stack column_stack",
    Kind.FACTORY: """
        tensor as_tensor scalar_tensor zeros ones full empty rand randn randint randperm normal
        arange range linspace logspace eye tril_indices triu_indices complex polar
        hann_window hamming_window blackman_window bartlett_window kaiser_window""",
    Kind.LIKE: """
        zeros_like ones_like full_like empty_like rand_like randn_like randint_like
        new_zeros new_ones new_full new_empty new_tensor bernoulli multinomial poisson""",
    Kind.DRAW: """
        normal_ uniform_ random_ exponential_ bernoulli_ log_normal_ cauchy_ geometric_
        kaiming_uniform_ kaiming_normal_""",
    Kind.VIEW: """
        view view_as reshape reshape_as t transpose swapaxes swapdims permute movedim moveaxis
        unsqueeze squeeze flatten unflatten ravel expand expand_as broadcast_to clone detach
        contiguous chunk split tensor_split unbind narrow select diagonal float double half
        bfloat16 long int short bool type type_as view_as_real view_as_complex""",
    Kind.INPLACE: "__set__",
    Kind.GETITEM: "__getitem__",
    Kind.SETITEM: "__setitem__",
    Kind.TO: "to cuda cpu xla xpu",
    Kind.NUMPY: "numpy __array__",
    Kind.BACKWARD: "backward grad",
}
_KIND_OF_NAME = {name: kind for kind, text in _NAMES.items() for name in text.split()}
_HEAVY_PREFIXES = ("linalg_", "fft_", "_fft")

# Attributes that give a view; every other attribute only tells about the tensor.
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})


def kind_of(function: Callable[..., Any]) -> Kind:
    """Return the kind of a torch function, by its name."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        return Kind.VIEW if attribute in _VIEW_ATTRIBUTES else Kind.PASSIVE
    if str(function).startswith("quantized."):
        return Kind.HOST
    if name in _KIND_OF_NAME:
        return _KIND_OF_NAME[name]
    if name.startswith(_HEAVY_PREFIXES):
        return Kind.HEAVY
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")):
        return Kind.INPLACE
    return Kind.COMPUTE
