"""The data of a page's charts -> plotly figures for a notebook, with the page's numbers."""
