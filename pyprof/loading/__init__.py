"""A name on the command line -> Records, and the Trace behind them; the one list of input formats."""
