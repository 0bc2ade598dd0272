"""A capture as a timeline for ui.perfetto.dev."""
