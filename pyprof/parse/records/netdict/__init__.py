"""Records <-> the lines of net.dict."""
