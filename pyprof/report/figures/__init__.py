"""The data of a page's charts -> plotly figures for a notebook. They show the page's numbers and compute none of a capture."""
