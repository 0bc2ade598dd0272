"""A Trace -> Records: which op, layer and source line launched each kernel. Knows no file format and no formula."""
