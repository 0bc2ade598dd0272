"""Records, and the forms in which they are stored: net.dict, Parquet, data sets of many captures."""
