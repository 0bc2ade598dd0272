"""Numbers with units -> human texts (1.24 ms, 9.30 GFLOP, 412 GB/s, 44.4 %), and shares -> bars.

`--where` reads these texts back.
"""

from __future__ import annotations

import math
import re

PREFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_POWERS = {power: prefix for prefix, power in PREFIXES.items()}
_LARGEST = max(PREFIXES.values())
SCALED = re.compile(r"([numkMGTP]?)(s|B/s|B|FLOP/s|FLOP)")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def human(value: float | None, unit: str) -> str:
    """A number with three digits and a fitting prefix: `human(1_240_000, "ns")` is `1.24 ms`.

    unit: unit of `value` as in `Header.unit`: s, B, FLOP, B/s, FLOP/s with or without a prefix; other units (%, ticks,
    FLOP/B) are kept; empty: a bare number. None and NaN give `na`.
    """
    return " ".join(parts(value, unit)).rstrip()


def parts(value: float | None, unit: str) -> tuple[str, str]:
    """As `human`, number and unit apart."""
    if value is None or math.isnan(value):
        return "na", ""
    if not math.isfinite(value):
        return str(value), unit
    found = SCALED.fullmatch(unit)
    if unit == "%" and isinstance(value, float) and abs(value) < 99.95:
        return f"{value:.1f}", unit
    if found is None or not value:
        return _digits(value), unit
    power, base = PREFIXES[found[1]], found[2]
    exponent = int(f"{value:.2e}".partition("e")[2])  # of the rounded number: 999,999 ns are 1.00 ms
    least, most = ({"B": 0, "FLOP": 0}.get(base, min(PREFIXES.values())), 0 if base == "s" else _LARGEST)
    scaled = min(max((power + exponent) // 3 * 3, least), most)
    number = value * 10.0 ** (power - scaled)
    whole = scaled == power and number == int(number)  # so many ns, not 7.00 ns
    return f"{number:.0f}" if whole and abs(number) < 1000 else _digits(number), f"{_POWERS[scaled]}{base}"


def mib(size: int | None) -> str:
    """Bytes as people count memory: `6,688.4 MiB`, `1.2 KiB`, `4 B`."""
    if size is None:
        return "na"
    if abs(size) < 1024:
        return f"{size} B"
    return f"{size / 1024:,.1f} KiB" if abs(size) < (1 << 20) // 10 else f"{size / (1 << 20):,.1f} MiB"


def _digits(number: float) -> str:
    """Three digits, or all before the point; integers without decimals."""
    if isinstance(number, int) or not number:
        return f"{number:.0f}"
    if 0 < number < 0.0005:
        return "<0.001"
    exponent = int(f"{number:.2e}".partition("e")[2])
    return f"{number:.{min(max(2 - exponent, 0), 4)}f}"


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """A bar of at most `width` characters for a share from 0 to 1, not padded; ascii_only: made of `#`.

    Any share above 0 is visible: at least an eighth of a character, or one `#`.
    """
    if not share > 0:
        return ""
    if ascii_only:
        return "#" * max(round(min(share, 1) * width), 1)
    whole, eighths = divmod(max(round(min(share, 1) * width * 8), 1), 8)
    return _EIGHTHS[8] * whole + _EIGHTHS[eighths].strip()
