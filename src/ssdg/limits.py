"""Devices, and upper limits of counts that users set: far above any machine and far below what exhausts one."""

DEVICES = ("auto", "cpu", "cuda", "mps")
MAX_THREADS = 1024  # CPU threads of a process
MAX_JOBS = 4096  # parallel workers of a benchmark
MAX_IMAGES = 65_536  # images of a batch of `ssdg predict`
