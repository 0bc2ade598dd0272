"""A file -> a pandas DataFrame with the columns of `pyprof prof`, for people who go on in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__all__ = ["table"]


def table(file: str, columns: str = "", kinds: str = "kernel,graph,cpu") -> pandas.DataFrame:
    """One row a record of a capture or of the records that parse wrote.

    columns: keys by comma as for `-c`, all where empty; kinds: as for `--kinds`. Whole numbers are Int64, texts categories;
    what is unknown is NA. Raises PyprofError as the command line does.
    """
    import pandas as pd

    from pyprof.load import load
    from pyprof.parse.command import choose_kinds
    from pyprof.prof.columns import COLUMNS, choose
    from pyprof.prof.frame import Floats, Frame, Texts

    frame = Frame(choose_kinds(load(file), kinds))
    series: dict[str, object] = {}
    for column in choose(columns) if columns else COLUMNS:
        values = column.compute(frame)
        if isinstance(values, Texts):
            pool = pd.Index(values.pool)
            distinct, codes = pool.unique(), pd.factorize(pool)[0]
            known = [codes[code] if code >= 0 and values.pool[code] != "na" else -1 for code in values.codes.tolist()]
            series[column.key] = pd.Categorical.from_codes(known, categories=distinct)
        elif isinstance(values, Floats):
            series[column.key] = values.values
        else:
            series[column.key] = pd.array(values.values, dtype="Int64")
            series[column.key][values.values < 0] = pd.NA  # type: ignore[index]
    return pd.DataFrame(series)
