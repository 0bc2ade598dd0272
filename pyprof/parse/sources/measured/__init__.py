"""Files of measured counters -> Measured."""
