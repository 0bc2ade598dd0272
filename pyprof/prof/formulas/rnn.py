"""Recurrent layers and cells: LSTM, GRU and the plain RNN, under torch's and cuDNN's names.

Every weight matrix, of the input, of the state and of a projection, multiplies each of the T·B rows once: 2·T·B·(elements of
the matrix), in each layer and direction. The gates cost 30 (LSTM), 23 (GRU) or 4 (RNN) vector operations an element of the
state: the additions of the two products and their two biases (without biases 2 a gate less), the sigmoids (4 each), tanh and
products. Bytes: weights once,
input, states and output; what a kernel that is not persistent reads again each step is not the algorithm's minimum. The
backward has two products for each of the forward's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, opt, product, spec, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

# Operations an element of the state without biases. LSTM: the two products added for each of 4 gates, three sigmoids of 4,
# tanh, f·c + i·g 3, tanh(c), times o. GRU: two gates of a sum and a sigmoid, n = tanh(sum + r·sum) 3, (1 - z)·n + z·h 4.
# RNN: a sum, tanh.
_POINTWISE = {"lstm": 22, "gru": 17, "rnn_tanh": 2, "rnn_relu": 2}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _pointwise(kind: str, biased: bool) -> int:
    return _POINTWISE[kind] + (2 * _GATES[kind] if biased else 0)


def _flatten(values: Iterable[Any]) -> Iterator[TensorSpec]:
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _flatten(value)


class _Layers:
    """The tensors of one call: the input, packed or not, the states (of 3 dimensions), the matrices and the biases."""

    def __init__(self, kind: str, input: TensorSpec, rest: tuple[Any, ...]) -> None:
        found = [t for t in _flatten(rest) if t.dtype != "int64"]  # batch_sizes of a packed input
        self.kind, self.input = kind, input
        self.matrices = [t for t in found if len(t.shape) == 2]
        self.biases = [t for t in found if len(t.shape) == 1]
        self.states = [t for t in found if len(t.shape) == 3]
        if not self.matrices or not self.states:
            raise Missing("weights not recorded")
        self.rows = product(input.shape[:-1])
        gates = _GATES[kind]
        # The recurrent matrices are (gates·H, state), one each layer and direction, every other one.
        hidden = self.matrices[0].shape[0] // gates
        self.cells = sum(1 for m in self.matrices if m.shape[0] == gates * hidden) // 2
        self.hidden = hidden
        last = self.states[0].shape[-1]
        directions = self._directions(last)
        self.output = spec((self.rows, last * directions), input.dtype)

    def _directions(self, state: int) -> int:
        """2 where the second layer's input is twice the state, or there is one layer of two; from the matrices' widths."""
        if self.cells < 2:
            return 1
        widths = [m.shape[1] for m in self.matrices if m.shape[0] == _GATES[self.kind] * self.hidden][::2]
        if all(w == widths[0] for w in widths):
            # One layer of two directions reads the same input twice; stacked layers read the state.
            return 2 if len(widths) == 2 and widths[0] != state else 1
        return 2 if 2 * state in widths[1:] else 1

    def forward(self) -> Cost:
        flops = 2 * self.rows * sum(m.numel for m in self.matrices)
        operations = _pointwise(self.kind, bool(self.biases)) * self.rows * self.hidden * self.cells
        touched = nbytes(self.input, self.matrices, self.biases, self.states, self.output, self.states)
        return Cost(flops, operations, touched)

    def backward(self) -> tuple[Piece, ...]:
        once = self.forward()
        flops, operations = once.matmul_flops or 0, 2 * (once.vector_flops or 0)
        weights = [m for m in self.matrices if wants(m)]
        pieces = []
        grad = gradient(self.output)
        # The gradient must go through every step, the initial state's too in cuDNN, even where the input wants none; only the
        # first layer's own product is spared.
        spared = 0 if wants(self.input) else 2 * self.rows * self.matrices[0].numel
        pieces.append(
            Piece("dgrad", Cost(flops - spared, operations, nbytes(grad, self.matrices, self.output, gradient(self.input))))
        )
        if weights:
            done = 2 * self.rows * sum(m.numel for m in weights)
            touched = nbytes(grad, self.input, self.output, [gradient(m) for m in weights], [gradient(b) for b in self.biases])
            pieces.append(Piece("wgrad", Cost(done, 0, touched)))
        return tuple(pieces)


def _register_layers(kind: str) -> None:
    def layers(input: TensorSpec, *rest: Any) -> Cost:
        return _Layers(kind, input, rest).forward()

    def layers_backward(input: TensorSpec, *rest: Any) -> tuple[Piece, ...]:
        return _Layers(kind, input, rest).backward()

    layers.__qualname__ = kind
    formula(f"torch.{kind}", f"aten::{kind}", f"torch._VF.{kind}", f"aten::quantized_{kind}", kind="matmul")(layers)
    backward(f"torch.{kind}", f"aten::{kind}", f"torch._VF.{kind}")(layers_backward)


def _cell(
    kind: str, input: TensorSpec, states: list[TensorSpec], w_ih: TensorSpec, w_hh: TensorSpec, biases: list[TensorSpec]
) -> Cost:
    rows = product(input.shape[:-1])
    flops = 2 * rows * (w_ih.numel + w_hh.numel)
    hidden = w_hh.shape[1]
    touched = nbytes(input, states, w_ih, w_hh, biases, [gradient(s) for s in states])
    return Cost(flops, _pointwise(kind, bool(biases)) * rows * hidden, touched)


def _register_cell(kind: str) -> None:
    def cell(input: TensorSpec, hx: Any, w_ih: Any, w_hh: Any = None, *rest: Any, **more: Any) -> Cost:
        found = list(_flatten((hx, w_ih, w_hh, rest, more.values())))
        count = 2 if kind == "lstm" else 1
        if len(found) < count + 2:
            raise Missing("weights not recorded")
        return _cell(kind, input, found[:count], found[count], found[count + 1], found[count + 2 :])

    def cell_backward(input: TensorSpec, hx: Any, w_ih: Any, w_hh: Any = None, *rest: Any, **more: Any) -> tuple[Piece, ...]:
        found = list(_flatten((hx, w_ih, w_hh, rest, more.values())))
        count = 2 if kind == "lstm" else 1
        one, two = found[count], found[count + 1]
        rows = product(input.shape[:-1])
        grad = spec((rows, one.shape[0]), input.dtype)
        pieces = []
        for source, weight, names in (
            (input, one, ("dgrad_input", "wgrad_input")),
            (found[0], two, ("dgrad_state", "wgrad_state")),
        ):
            flops = 2 * rows * weight.numel
            if wants(source):
                pieces.append(Piece(names[0], Cost(flops, 0, nbytes(grad, weight, gradient(source)))))
            if wants(weight):
                pieces.append(Piece(names[1], Cost(flops, 0, nbytes(grad, source, gradient(weight)))))
        return tuple(pieces)

    cell.__qualname__ = f"{kind}_cell"
    names = (f"torch.{kind}_cell", f"aten::{kind}_cell", f"torch._VF.{kind}_cell")
    formula(*names, f"aten::quantized_{kind}_cell", f"torch.quantized_{kind}_cell", kind="matmul")(cell)
    backward(*names)(cell_backward)


for _kind in _GATES:
    _register_layers(_kind)
    _register_cell(_kind)


# ---------------------------------------------------------------------------------------------- the original's cell markers


def _register_module_cell(name: str, kind: str) -> None:
    def module_cell(input: TensorSpec, hx: Any = None, *states: Any) -> Cost:
        """The forward of a cell, whose weights are not among its arguments: (gates·H, I) and (gates·H, H)."""
        found = list(_flatten((hx, states)))
        if not found:
            raise Missing("state not recorded")
        size, width = found[0].shape[-1], input.shape[-1]
        gates = _GATES[kind] * size
        weights = [spec((gates, width), input.dtype), spec((gates, size), input.dtype)]
        return _cell(kind, input, found, weights[0], weights[1], [spec((gates,), input.dtype)] * 2)

    module_cell.__qualname__ = f"{name}.forward"
    formula(f"{name}.forward", kind="matmul")(module_cell)


for _name, _kind in (("LSTMCell", "lstm"), ("GRUCell", "gru"), ("RNNCell", "rnn_tanh")):
    _register_module_cell(_name, _kind)


# ---------------------------------------------------------------------------------------------- cuDNN and the fused gates

_MODES = {0: "rnn_relu", 1: "rnn_tanh", 2: "lstm", 3: "gru"}  # cudnnRNNMode_t


@formula("aten::_cudnn_rnn", "torch._cudnn_rnn", kind="matmul")
def cudnn_rnn(
    input: TensorSpec, weight: list[TensorSpec], weight_stride0: Any, weight_buf: Any, hx: Any, cx: Any = None,
    mode: Any = None,
    *options: Any,
) -> Cost:  # fmt: skip
    if not isinstance(mode, int):
        raise Missing("mode not recorded")
    return _Layers(_MODES[mode], input, (hx, cx, weight)).forward()


@formula("aten::miopen_rnn", "torch.miopen_rnn", kind="matmul")
def miopen_rnn(
    input: TensorSpec, weight: list[TensorSpec], weight_stride0: Any, hx: Any, cx: Any = None, mode: Any = None, *options: Any
) -> Cost:
    return cudnn_rnn(input, weight, weight_stride0, None, hx, cx, mode)


@formula("aten::mkldnn_rnn_layer", "torch.mkldnn_rnn_layer", kind="matmul")
def mkldnn_rnn_layer(
    input: TensorSpec, weight0: TensorSpec, weight1: TensorSpec, weight2: TensorSpec, weight3: TensorSpec, hx_: TensorSpec,
    cx_: TensorSpec,
    *options: Any,
) -> Cost:  # fmt: skip
    """One layer in one direction. Its mode is an LSTM or a GRU, told apart by the gates that a state of one size has."""
    return _one_layer(input, weight0, weight1, [weight2, weight3], hx_)


def _one_layer(input: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, biases: list[TensorSpec], hx: TensorSpec) -> Cost:
    gates = w_hh.shape[0] // max(w_hh.shape[1], 1)
    kind = next((kind for kind, count in _GATES.items() if count == gates), "lstm")
    return _cell(kind, input, [hx] * (2 if kind == "lstm" else 1), w_ih, w_hh, biases)


@formula("aten::mkldnn_rnn_layer_backward", kind="matmul")
def mkldnn_rnn_layer_backward(
    input: TensorSpec, weight1: TensorSpec, weight2: TensorSpec, weight3: TensorSpec, weight4: TensorSpec, hx_: TensorSpec,
    cx_tmp: TensorSpec,
    output: TensorSpec, *options: Any,
) -> Cost:  # fmt: skip
    """All gradients, as oneDNN computes them: two products for each of the forward's."""
    once = _one_layer(input, weight1, weight2, [weight3, weight4], hx_)
    inputs = (input, weight1, weight2, weight3, weight4, hx_, cx_tmp)
    read, written = (*inputs, output, gradient(output)), [gradient(t) for t in inputs]
    return Cost(2 * (once.matmul_flops or 0), 2 * (once.vector_flops or 0), nbytes(*read, written))


@formula("aten::_cudnn_rnn_backward", kind="matmul")
def cudnn_rnn_backward(
    input: TensorSpec, weight: list[TensorSpec], weight_stride0: Any, weight_buf: Any, hx: TensorSpec, cx: Any, output: Any,
    grad_output: Any, grad_hy: Any, grad_cy: Any, mode: Any, hidden_size: Any, proj_size: Any, num_layers: Any,
    batch_first: Any, dropout: Any, train: Any, bidirectional: Any, batch_sizes: Any, dropout_state: Any, reserve: Any,
    output_mask: Any,
) -> Cost:  # fmt: skip
    """Two products for each of the forward's, without the first layer's or the weights' where output_mask leaves those out."""
    return _masked_backward(input, weight, hx, mode, output_mask)


@formula("aten::miopen_rnn_backward", kind="matmul")
def miopen_rnn_backward(
    input: TensorSpec, weight: list[TensorSpec], weight_stride0: Any, weight_buf: Any, hx: TensorSpec, cx: Any, output: Any,
    grad_output: Any, grad_hy: Any, grad_cy: Any, mode: Any, hidden_size: Any, num_layers: Any, batch_first: Any, dropout: Any,
    train: Any, bidirectional: Any, batch_sizes: Any, dropout_state: Any, reserve: Any, output_mask: Any,
) -> Cost:  # fmt: skip
    return _masked_backward(input, weight, hx, mode, output_mask)


def _masked_backward(input: TensorSpec, weight: list[TensorSpec], hx: TensorSpec, mode: Any, output_mask: Any) -> Cost:
    if mode not in _MODES or not isinstance(output_mask, (list, tuple)) or len(output_mask) != 4:
        raise Missing("mode or output_mask not recorded")
    wanted = [replace(w, grad=bool(output_mask[3])) for w in weight]
    pieces = _Layers(_MODES[mode], replace(input, grad=bool(output_mask[0])), (hx, wanted)).backward()
    costs = [piece.cost for piece in pieces]
    matmul, vector, moved = (sum(getattr(c, part) or 0 for c in costs) for part in ("matmul_flops", "vector_flops", "bytes"))
    unknown = any(c.bytes is None for c in costs)
    return Cost(matmul, vector, None if unknown else moved)


@formula(
    "aten::_thnn_fused_lstm_cell", "torch._thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "torch._thnn_fused_gru_cell"
)
def fused_gates(input_gates: TensorSpec, hidden_gates: TensorSpec, state: TensorSpec, *biases: Any) -> Cost:
    gates = input_gates.shape[-1] // max(state.shape[-1], 1)
    weight = _pointwise("lstm" if gates == 4 else "gru", any(opt(b) for b in biases))
    written = [gradient(state)] * (2 if gates == 4 else 1)
    return Cost(0, weight * state.numel, nbytes(input_gates, hidden_gates, state, list(biases), written, gradient(input_gates)))


# Backward of the gates of one step, by their definition, from dh (and dc) and the saved gates, an element of the state. LSTM:
# tanh(c) 1, do 1, dc = dc + dh·o·(1 - tanh²c) 5, di, df, dg and the old dc 4, and the slopes of the four gates 3 each. GRU: the
# gate i with its slope 5, n 4, the hidden part of n 1, r with its slope 4, the old state 1. A bias's gradient sums the rows.
_GATES_BACKWARD = {"lstm": 23, "gru": 15}


def _gates_backward(kind: str, state: TensorSpec, read: Any, gates: int, parts: int, biased: int) -> Cost:
    """gates: columns of the gradients written, in sizes of the state; parts: gradients of the state; biased: summed gates."""
    rows, size = product(state.shape[:-1]), state.shape[-1]
    operations = (_GATES_BACKWARD[kind] + biased) * state.numel
    written = [spec((rows, gates * size), state.dtype), [gradient(state)] * parts, spec((biased * size,), state.dtype)]
    return Cost(0, operations, nbytes(read, written))


@formula("aten::_thnn_fused_lstm_cell_backward", "aten::_thnn_fused_lstm_cell_backward_impl")
def fused_lstm_backward(
    grad_hy: Any, grad_cy: Any, cx: TensorSpec, cy: TensorSpec, workspace: TensorSpec, has_bias: Any = False
) -> Cost:
    read = (opt(grad_hy), opt(grad_cy), cx, cy, workspace)
    return _gates_backward("lstm", cx, read, 4, 1, 4 if has_bias is True else 0)


@formula("aten::_thnn_fused_gru_cell_backward")
def fused_gru_backward(grad_hy: TensorSpec, workspace: TensorSpec, has_bias: Any = False) -> Cost:
    # The input's and the state's gates differ by r in n: both are written.
    return _gates_backward("gru", grad_hy, (grad_hy, workspace), 6, 1, 6 if has_bias is True else 0)


@formula("aten::_thnn_differentiable_lstm_cell_backward")
def differentiable_lstm_backward(
    grad_hy: Any, grad_cy: Any, input_gates: TensorSpec, hidden_gates: TensorSpec, input_bias: Any, hidden_bias: Any,
    cx: TensorSpec, cy: TensorSpec,
) -> Cost:  # fmt: skip
    # The gates are computed again: sums of two (or, with biases, four) terms, three sigmoids of 4 and a tanh.
    terms = 3 if opt(input_bias) is not None else 1
    read = (opt(grad_hy), opt(grad_cy), input_gates, hidden_gates, opt(input_bias), opt(hidden_bias), cx, cy)
    cost = _gates_backward("lstm", cx, read, 4, 1, 4 if terms == 3 else 0)
    return replace(cost, vector_flops=(cost.vector_flops or 0) + (4 * terms + 13) * cx.numel)


@formula("aten::_thnn_differentiable_gru_cell_backward")
def differentiable_gru_backward(
    grad_hy: TensorSpec, input_gates: TensorSpec, hidden_gates: TensorSpec, hx: TensorSpec, input_bias: Any, hidden_bias: Any
) -> Cost:
    # Two sigmoids of 4 and a tanh again, the sums of the three gates, and r times the hidden part of n.
    terms = 3 if opt(input_bias) is not None else 1
    read = (grad_hy, input_gates, hidden_gates, hx, opt(input_bias), opt(hidden_bias))
    cost = _gates_backward("gru", hx, read, 6, 1, 6 if terms == 3 else 0)
    return replace(cost, vector_flops=(cost.vector_flops or 0) + (3 * terms + 10) * hx.numel)


@formula(*spellings("_cudnn_rnn_flatten_weight", "ta"), kind="copy")
def flatten_weight(weight_arr: list[TensorSpec], *options: Any) -> Cost:
    # All weights copied into one buffer.
    return Cost(0, 0, nbytes(weight_arr, [gradient(w) for w in weight_arr]))
