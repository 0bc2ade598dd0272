"""Recording a program, or a part of one, into a capture: under nsys, with torch.profiler, or inside a `with`."""
