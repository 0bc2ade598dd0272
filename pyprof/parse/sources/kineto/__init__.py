"""torch.profiler (Kineto) traces -> Trace."""
