"""The whole text of an op call, as net.dict has it <-> the call: `torch.nn.functional.linear(...)`, `aten::mm(...)`.

A leading ~ means that lists of tensors were flattened, a leading ? that strides are unknown where none are written. Names that
would be read as something else (an op called `ops.aten.add` or `f(x)`) are in quotes: `"torch"."f(x)"(...)`. No records here.
"""

from __future__ import annotations

import json
from contextlib import suppress

from pyprof.model.markers import UNREADABLE
from pyprof.model.opcall import OpCall, format_call, parse_call, sound_text

_PLACE = "op"  # a name that cannot be misread, in place of one in quotes


def call_text(call: OpCall) -> str:
    """`module.op(arguments)` or `namespace::op(arguments)`."""
    unknown = any(tensor.strides is None for tensor in call.tensors)
    flags = ("~" if call.flat else "") + ("?" if unknown else "")
    separator = "::" if call.dispatcher else "."
    plain = f"{call.module}{separator}{call.op}"
    if _split(f"{plain}(")[:3] == (call.module, call.op, call.dispatcher):
        head = plain
    else:
        head = separator.join(json.dumps(sound_text(name), ensure_ascii=False) for name in (call.module, call.op))
    return f"{flags}{head}{format_call(call, unknown)[len(call.op) :]}"


def parse_call_text(text: str) -> OpCall:
    """Read what `call_text` wrote; a text that cannot be read still names its op."""
    bare = text.lstrip("~?")
    flags = text[: len(text) - len(bare)]
    module, op, dispatcher, arguments = _split(bare)
    undescribed = OpCall(module, op, dispatcher=dispatcher, described=False)
    if arguments == "(...)":
        return undescribed
    try:
        call = parse_call(_PLACE + arguments, module, dispatcher=dispatcher, all_strides="?" in flags)
    except UNREADABLE:
        return undescribed
    return call._replace(op=op, flat="~" in flags)


def _split(text: str) -> tuple[str, str, bool, str]:
    """Module, op, whether the op is a dispatcher's, and the rest from the parenthesis on."""
    if text.startswith('"'):
        with suppress(ValueError):
            decode = json.JSONDecoder(strict=False).raw_decode
            module, end = decode(text)
            dispatcher = text.startswith("::", end)
            op, stop = decode(text, end + (2 if dispatcher else 1))
            if isinstance(module, str) and isinstance(op, str):
                return sound_text(module), sound_text(op), dispatcher, text[stop:]
    head, paren, rest = text.partition("(")
    dispatcher = "::" in head
    # A namespace holds no `::`, though an autograd function's name may; a Python module holds dots, an op none.
    module, _, op = head.partition("::") if dispatcher else head.rpartition(".")
    # A name with characters that would be read as flags or quotes has to be in quotes.
    return module.lstrip('~?"'), op, dispatcher, paren + rest
