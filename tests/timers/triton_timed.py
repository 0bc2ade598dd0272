"""A Triton kernel that times a load and a loop: compiled for sm_90 without a GPU, or run by the interpreter.

python triton_timed.py compile      prints the PTX, then the SASS
python triton_timed.py interpret    TRITON_INTERPRET=1; prints what it stored
"""

import subprocess
import sys
from pathlib import Path

import triton
import triton.language as tl

from pyprof.timers.triton import arrived, clock64, globaltimer, smid


@triton.jit
def timed(x, out, ticks, pairs, sms, LANES: tl.constexpr, N: tl.constexpr):
    lane = tl.program_id(0)
    tl.store(sms + lane, smid().to(tl.int64))
    tl.store(pairs + 0 * LANES + lane, clock64())
    tl.store(pairs + 1 * LANES + lane, globaltimer())
    before = clock64()
    begin = clock64()
    place = lane * N + tl.arange(0, N)
    value = arrived(tl.load(x + place))
    loaded = clock64()
    for _ in range(100):
        value = value * 1.5 + 1.0
    value = arrived(value)
    solved = clock64()
    tl.store(out + place, value)
    tl.store(ticks + 0 * LANES + lane, begin - before)
    tl.store(ticks + 1 * LANES + lane, loaded - begin)
    tl.store(ticks + 2 * LANES + lane, solved - loaded)
    tl.store(pairs + 2 * LANES + lane, clock64())
    tl.store(pairs + 3 * LANES + lane, globaltimer())


def compiled(dtype: str) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": f"*{dtype}", "out": f"*{dtype}", "ticks": "*i64", "pairs": "*i64", "sms": "*i64"}
    source = ASTSource(
        fn=timed, signature=signature | {"LANES": "constexpr", "N": "constexpr"}, constexprs={"LANES": 4, "N": 256}
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(made.asm["ptx"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    Path("timed.cubin").write_bytes(made.asm["cubin"])
    if tool.exists():
        print("SASS", subprocess.run([tool, "timed.cubin"], capture_output=True, text=True, check=True).stdout)


def interpreted() -> None:
    import torch

    from pyprof.timers import Buffer

    buffer = Buffer({"LOAD": 1, "SOLVE": 2}, 1, 4, backend="torch", device="cpu")
    x, out = torch.ones(4 * 256), torch.zeros(4 * 256)
    timed[(4,)](x, out, buffer.ticks, buffer.pairs, buffer.sms, 4, 256)
    assert out.min() > 1e17 and (buffer.sms == 0).all()
    print(buffer.calibrate())
    print(f"hz {buffer.hz}")


if __name__ == "__main__":
    compiled(sys.argv[2]) if sys.argv[1] == "compile" else interpreted()
