"""`python shifted_clock.py SECONDS COMMAND...`: the command line on a host whose clock is ahead, or behind."""

import runpy
import sys
import time

if __name__ == "__main__":
    seconds, host_time, host_time_ns = int(sys.argv.pop(1)), time.time, time.time_ns
    time.time = lambda: host_time() + seconds
    time.time_ns = lambda: host_time_ns() + seconds * 1_000_000_000
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
