"""The autocast region that an op is called in -> what distinguishes the call, and its text in the marker.

Outside of every region this is one question to torch. Inside, the device of an op's first tensor decides: a region of another
device does not concern it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_Region = tuple[str, torch.dtype] | None

_Tensor = torch.Tensor


def _queries() -> tuple[Callable[[str], bool], Callable[[str], torch.dtype]]:
    """torch's questions about one device; before torch 2.4 they had names for each of two devices."""
    try:
        torch.is_autocast_enabled("cpu")
    except TypeError:
        enabled = {"cuda": torch.is_autocast_enabled, "cpu": torch.is_autocast_cpu_enabled}
        dtype = {"cuda": torch.get_autocast_gpu_dtype, "cpu": torch.get_autocast_cpu_dtype}
        return (lambda device: device in enabled and enabled[device]()), lambda device: dtype[device]()
    return torch.is_autocast_enabled, torch.get_autocast_dtype


_enabled, _dtype = _queries()


def _any_enabled() -> bool:
    return _enabled("cuda") or _enabled("cpu")


in_autocast: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", _any_enabled)
"""Whether this thread is inside a region of any device."""


def autocast_region(args: Iterable[Any], kwargs: dict[str, Any]) -> _Region:
    """Device and dtype of the region that a call is made in; None where none concerns it."""
    for value in args:
        if isinstance(value, _Tensor):
            device = "cuda" if value.is_cuda else "cpu" if value.is_cpu else value.device.type
            return (device, _dtype(device)) if _enabled(device) else None
        if (type(value) is list or type(value) is tuple) and value and isinstance(value[0], _Tensor):
            return autocast_region(value, {})
    return autocast_region(kwargs.values(), {}) if kwargs else None


def autocast_text(args: Iterable[Any], kwargs: dict[str, Any]) -> str:
    """The region as markers have it, `cuda:bf16`; empty where none concerns the call."""
    region = autocast_region(args, kwargs) if in_autocast() else None
    return f"{region[0]}:{str(region[1]).removeprefix('torch.')}" if region else ""
