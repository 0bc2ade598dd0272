"""Layerwise ranges as vLLM, SGLang and TensorRT-LLM write them, nested, with an op inside as emit_nvtx writes it."""

from __future__ import annotations

from pyprof.nvtx.backend import NvtxBackend

TEXTS = (
    "{'Module': 'model.layers.0', 'Inputs': [[32, 64]]}",
    "model.layers.0.mlp in=[[32, 64]]",
    "aten::mm, op_id = 7, sizes = [[32, 64], [64, 8]]",
)

backend = NvtxBackend()
for text in TEXTS:
    backend.push(backend.prepare(text))
for _ in TEXTS:
    backend.pop()
