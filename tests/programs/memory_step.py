"""One step of training on a CPU, recorded with its allocations; prints what torch itself counts: bytes of parameters, gradients,
optimizer state, and of what autograd saved that forward made."""

import json
import sys

import torch

import pyprof

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 32))
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
old = torch.randn(256, 64), torch.randn(256, 32)
saved: dict[int, int] = {}


def pack(tensor: torch.Tensor) -> torch.Tensor:
    saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


with pyprof.capture(sys.argv[1], table=0, memory=True):
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = torch.nn.functional.mse_loss(net(old[0]), old[1])
    loss.backward()
    gradients = sum(one.grad.nbytes for one in net.parameters() if one.grad is not None)
    optimizer.step()

known = {one.untyped_storage().data_ptr() for one in (*net.parameters(), *old)}
state = [value for one in optimizer.state.values() for value in one.values() if isinstance(value, torch.Tensor)]
print(json.dumps({
    "parameters": sum(one.nbytes for one in net.parameters()), "gradients": gradients,
    "optimizer state": sum(one.nbytes for one in state), "activations": sum(size for at, size in saved.items() if at not in known),
}))  # fmt: skip
