"""Records and how they are stored: net.dict, Parquet, data sets of many captures."""
