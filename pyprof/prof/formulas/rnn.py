"""Recurrent layers and cells: LSTM, GRU and the plain RNN, under torch's and cuDNN's names.

Every weight matrix, of the input, of the state and of a projection, multiplies each of the T·B rows once: 2·T·B·(elements of
the matrix), in each layer and direction. The gates cost 30 (LSTM), 23 (GRU) or 4 (RNN) vector operations an element of the
state: the additions of the two products and their two biases (without biases 2 a gate less), the sigmoids (4 each), tanh and
products. Bytes: weights once, input, states and output; what a kernel that is not persistent reads again each step is not the
algorithm's minimum. The backward has two products for each of the forward's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, opt, product, spec, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op

# Operations an element of the state without biases. LSTM: the two products added for each of 4 gates, three sigmoids of 4,
# tanh, f·c + i·g 3, tanh(c), times o. GRU: two gates of a sum and a sigmoid, n = tanh(sum + r·sum) 3, (1 - z)·n + z·h 4.
# RNN: a sum, tanh.
_POINTWISE = {"lstm": 22, "gru": 17, "rnn_tanh": 2, "rnn_relu": 2}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _pointwise(kind: str, biased: bool) -> int:
    return _POINTWISE[kind] + (2 * _GATES[kind] if biased else 0)


def _flatten(values: Iterable[object]) -> Iterator[TensorSpec]:
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _flatten(value)


# ---------------------------------------------------------------------------------------------- layers


class _Layers:
    """The tensors of one call: the input, packed or not, the states (of 3 dimensions), the matrices and the biases."""

    def __init__(self, kind: str, input: TensorSpec, *rest: object) -> None:
        found = [t for t in _flatten(rest) if t.dtype != "int64"]  # batch_sizes of a packed input
        self.kind, self.input = kind, input
        self.matrices = [t for t in found if len(t.shape) == 2]
        self.biases = [t for t in found if len(t.shape) == 1]
        self.states = [t for t in found if len(t.shape) == 3]
        if not self.matrices or not self.states:
            raise Missing("weights not recorded")
        self.rows = product(input.shape[:-1])
        # The recurrent matrices are (gates·H, state), one each layer and direction, every other one.
        self.hidden = self.matrices[0].shape[0] // _GATES[kind]
        last = self.states[0].shape[-1]
        widths = [m.shape[1] for m in self.matrices if m.shape[0] == _GATES[kind] * self.hidden]
        self.cells = len(widths) // 2
        self.output = spec((self.rows, last * self._directions(last, widths[::2])), input.dtype)

    def _directions(self, state: int, widths: list[int]) -> int:
        """2 where the second layer's input is twice the state, or there is one layer of two; from the matrices' widths."""
        if self.cells < 2:
            return 1
        if all(w == widths[0] for w in widths):
            # One layer of two directions reads the same input twice; stacked layers read the state.
            return 2 if len(widths) == 2 and widths[0] != state else 1
        return 2 if 2 * state in widths[1:] else 1

    def forward(self) -> Cost:
        flops = 2 * self.rows * sum(m.numel for m in self.matrices)
        operations = _pointwise(self.kind, bool(self.biases)) * self.rows * self.hidden * self.cells
        return Cost(flops, operations, nbytes(self.input, self.matrices, self.biases, self.states, self.output, self.states))

    def both(self) -> Op:
        once = self.forward()
        yield once
        incoming = gradient(self.output)
        # The gradient must go through every step, the initial state's too in cuDNN, even where the input wants none; only the
        # first layer's own product is spared.
        flops = (once.matmul_flops or 0) - (0 if wants(self.input) else 2 * self.rows * self.matrices[0].numel)
        touched = nbytes(incoming, self.matrices, self.output, gradient(self.input))
        yield Piece("dgrad", Cost(flops, 2 * (once.vector_flops or 0), touched))
        weights = [m for m in self.matrices if wants(m)]
        if weights:
            written = [gradient(w) for w in (*weights, *self.biases)]
            flops = 2 * self.rows * sum(m.numel for m in weights)
            yield Piece("wgrad", Cost(flops, 0, nbytes(incoming, self.input, self.output, written)))


def _declare_layers(kind: str) -> None:
    @op(f"aten::quantized_{kind}", kind="matmul", backward=False)
    @op(kind, f"torch._VF.{kind}", places="ta", kind="matmul")
    def layers(input: TensorSpec, *rest: object) -> Op:
        return _Layers(kind, input, *rest).both()


_MODES = {0: "rnn_relu", 1: "rnn_tanh", 2: "lstm", 3: "gru"}  # cudnnRNNMode_t


@op("_cudnn_rnn", "miopen_rnn", places="ta", kind="matmul")
def cudnn_rnn(input: TensorSpec, weight: list[TensorSpec], hx: object, cx: object = None, mode: object = None) -> Cost:
    if not isinstance(mode, int):
        raise Missing("mode not recorded")
    return _Layers(_MODES[mode], input, hx, cx, weight).forward()


@op("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", kind="matmul")
def cudnn_rnn_backward(input: TensorSpec, weight: list[TensorSpec], hx: TensorSpec, mode: object, output_mask: object) -> Cost:
    """Two products for each of the forward's, without the first layer's or the weights' where output_mask leaves those out."""
    if not isinstance(mode, int) or mode not in _MODES or not isinstance(output_mask, (list, tuple)) or len(output_mask) != 4:
        raise Missing("mode or output_mask not recorded")
    wanted = [replace(w, grad=bool(output_mask[3])) for w in weight]
    made = _Layers(_MODES[mode], replace(input, grad=bool(output_mask[0])), hx, wanted).both()
    costs = [piece.cost for piece in made if isinstance(piece, Piece)]
    matmul, vector, moved = (sum(getattr(c, part) or 0 for c in costs) for part in ("matmul_flops", "vector_flops", "bytes"))
    return Cost(matmul, vector, None if any(c.bytes is None for c in costs) else moved)


# ---------------------------------------------------------------------------------------------- cells


def _cell(
    kind: str, input: TensorSpec, states: list[TensorSpec], w_ih: TensorSpec, w_hh: TensorSpec, biases: list[TensorSpec]
) -> Cost:
    rows = product(input.shape[:-1])
    touched = nbytes(input, states, w_ih, w_hh, biases, [gradient(s) for s in states])
    return Cost(2 * rows * (w_ih.numel + w_hh.numel), _pointwise(kind, bool(biases)) * rows * w_hh.shape[1], touched)


def _declare_cell(kind: str) -> None:
    @op(f"quantized_{kind}_cell", places="ta", kind="matmul", backward=False)
    @op(f"{kind}_cell", f"torch._VF.{kind}_cell", places="ta", kind="matmul")
    def cell(input: TensorSpec, hx: object, w_ih: object, w_hh: object = None, *rest: object, **more: object) -> Op:
        found = list(_flatten((hx, w_ih, w_hh, rest, more.values())))
        count = 2 if kind == "lstm" else 1
        if len(found) < count + 2:
            raise Missing("weights not recorded")
        one, two = found[count : count + 2]
        yield _cell(kind, input, found[:count], one, two, found[count + 2 :])
        rows = product(input.shape[:-1])
        incoming = spec((rows, one.shape[0]), input.dtype)
        for what, source, weight in (("input", input, one), ("state", found[0], two)):
            flops = 2 * rows * weight.numel
            if wants(source):
                yield Piece(f"dgrad_{what}", Cost(flops, 0, nbytes(incoming, weight, gradient(source))))
            if wants(weight):
                yield Piece(f"wgrad_{what}", Cost(flops, 0, nbytes(incoming, source, gradient(weight))))


for _kind in _GATES:
    _declare_layers(_kind)
    _declare_cell(_kind)


def _declare_module_cell(name: str, kind: str) -> None:
    @op(f"{name}.forward", kind="matmul")
    def module_cell(input: TensorSpec, hx: object = None, *states: object) -> Cost:
        """A cell as the original PyProf marked it, without its weights: (gates·H, I) and (gates·H, H)."""
        found = list(_flatten((hx, states)))
        if not found:
            raise Missing("state not recorded")
        size = found[0].shape[-1]
        gates = _GATES[kind] * size
        weights = [spec((gates, width), input.dtype) for width in (input.shape[-1], size)]
        return _cell(kind, input, found, weights[0], weights[1], [spec((gates,), input.dtype)] * 2)


for _name, _kind in (("LSTMCell", "lstm"), ("GRUCell", "gru"), ("RNNCell", "rnn_tanh")):
    _declare_module_cell(_name, _kind)


@op("mkldnn_rnn_layer", places="ta", kind="matmul")
def mkldnn_rnn_layer(
    input: TensorSpec, weight0: TensorSpec, weight1: TensorSpec, weight2: TensorSpec, weight3: TensorSpec, hx_: TensorSpec
) -> Cost:
    """One layer in one direction. An LSTM or a GRU, inferred from the number of gates for a state of this size."""
    gates = weight1.shape[0] // max(weight1.shape[1], 1)
    kind = next((kind for kind, count in _GATES.items() if count == gates), "lstm")
    return _cell(kind, input, [hx_] * (2 if kind == "lstm" else 1), weight0, weight1, [weight2, weight3])


@op("aten::mkldnn_rnn_layer_backward", kind="matmul")
def mkldnn_rnn_layer_backward(
    input: TensorSpec, weight1: TensorSpec, weight2: TensorSpec, weight3: TensorSpec, weight4: TensorSpec, hx_: TensorSpec,
    cx_tmp: TensorSpec, output: TensorSpec,
) -> Cost:  # fmt: skip
    """All gradients, as oneDNN computes them: two products for each of the forward's."""
    once = mkldnn_rnn_layer(input, weight1, weight2, weight3, weight4, hx_)
    inputs = (input, weight1, weight2, weight3, weight4, hx_, cx_tmp)
    touched = nbytes(*inputs, output, gradient(output), [gradient(t) for t in inputs])
    return Cost(2 * (once.matmul_flops or 0), 2 * (once.vector_flops or 0), touched)


# ---------------------------------------------------------------------------------------------- fused gates of one step


@op("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", places="ta")
def fused_gates(input_gates: TensorSpec, hidden_gates: TensorSpec, state: TensorSpec, *biases: object) -> Cost:
    kind = "lstm" if input_gates.shape[-1] // max(state.shape[-1], 1) == 4 else "gru"
    operations = _pointwise(kind, any(opt(b) for b in biases)) * state.numel
    written = [gradient(state)] * (2 if kind == "lstm" else 1)
    return Cost(0, operations, nbytes(input_gates, hidden_gates, state, list(biases), written, gradient(input_gates)))


# Backward of the gates of one step, by their definition, from dh (and dc) and the saved gates, an element of the state. LSTM:
# tanh(c) 1, do 1, dc = dc + dh·o·(1 - tanh²c) 5, di, df, dg and the old dc 4, and the slopes of the four gates 3 each. GRU: the
# gate i with its slope 5, n 4, the hidden part of n 1, r with its slope 4, the old state 1. A bias's gradient sums the rows.
_GATES_BACKWARD = {"lstm": 23, "gru": 15}
# Columns of the gradients written, in sizes of the state. The GRU's input's and state's gates differ by r in n: both count.
_GATES_WRITTEN = {"lstm": 4, "gru": 6}
# Operations for the gates computed again: of each term of their sums (without biases 1, with them 3), and besides, the sigmoids
# of 4, the tanh and, in a GRU, r times the hidden part of n.
_GATES_AGAIN = {"lstm": (4, 13), "gru": (3, 10)}


def _gates_backward(kind: str, state: TensorSpec, biased: bool, *read: object, again: bool = False) -> Cost:
    rows, size, gates = product(state.shape[:-1]), state.shape[-1], _GATES_WRITTEN[kind]
    summed = gates if biased else 0
    operations = _GATES_BACKWARD[kind] + summed
    if again:
        term, rest = _GATES_AGAIN[kind]
        operations += term * (3 if biased else 1) + rest
    written = (spec((rows, gates * size), state.dtype), gradient(state), spec((summed * size,), state.dtype))
    return Cost(0, operations * state.numel, nbytes(read, written))


@op("aten::_thnn_fused_lstm_cell_backward", "aten::_thnn_fused_lstm_cell_backward_impl")
def fused_lstm_backward(
    grad_hy: object, grad_cy: object, cx: TensorSpec, cy: TensorSpec, workspace: TensorSpec, has_bias: object = False
) -> Cost:
    return _gates_backward("lstm", cx, has_bias is True, opt(grad_hy), opt(grad_cy), cx, cy, workspace)


@op("aten::_thnn_fused_gru_cell_backward")
def fused_gru_backward(grad_hy: TensorSpec, workspace: TensorSpec, has_bias: object = False) -> Cost:
    return _gates_backward("gru", grad_hy, has_bias is True, grad_hy, workspace)


@op("aten::_thnn_differentiable_lstm_cell_backward")
def differentiable_lstm_backward(
    grad_hy: object, grad_cy: object, input_gates: TensorSpec, hidden_gates: TensorSpec, input_bias: object,
    hidden_bias: object, cx: TensorSpec, cy: TensorSpec,
) -> Cost:  # fmt: skip
    read = (opt(grad_hy), opt(grad_cy), input_gates, hidden_gates, opt(input_bias), opt(hidden_bias), cx, cy)
    return _gates_backward("lstm", cx, opt(input_bias) is not None, *read, again=True)


@op("aten::_thnn_differentiable_gru_cell_backward")
def differentiable_gru_backward(
    grad_hy: TensorSpec, input_gates: TensorSpec, hidden_gates: TensorSpec, hx: TensorSpec, input_bias: object,
    hidden_bias: object,
) -> Cost:  # fmt: skip
    read = (grad_hy, input_gates, hidden_gates, hx, opt(input_bias), opt(hidden_bias))
    return _gates_backward("gru", hx, opt(input_bias) is not None, *read, again=True)
