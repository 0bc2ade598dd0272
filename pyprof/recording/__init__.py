"""Running a program, or a part of one, so that a capture comes of it: under nsys, with torch.profiler, or inside a `with`."""
