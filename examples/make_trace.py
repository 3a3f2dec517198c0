#!/usr/bin/env python3
"""Makes office.csv.gz: a synthetic trace of a small file server, 40 s, the same on every machine.

Quiet, a burst of ten times the rate, quiet, and a sequential scan: what a power policy must follow.
"""

import gzip
import random

HEADING = "at_ns,op,offset,bytes,device,stream,latency_ns"
# Length in seconds, requests per second, share of reads, whether offsets are sequential.
PHASES = [(12, 150, 0.7, False), (4, 1500, 0.7, False), (14, 150, 0.7, False), (10, 400, 1.0, True)]
SPAN = 64 << 30


def requests():
    rng = random.Random(2026)
    start, offset = 0.0, 0
    for length, rate, reads, is_scan in PHASES:
        at = start
        while (at := at + rng.expovariate(rate)) < start + length:
            size = 65536 if is_scan else rng.choice([4096, 4096, 4096, 8192, 16384])
            offset = (offset + size) % SPAN if is_scan else rng.randrange(SPAN // 4096) * 4096
            op = "R" if rng.random() < reads else "W"
            yield f"{round(at * 1e6) * 1000},{op},{offset},{size},0,{rng.randrange(8)},"
        start += length


if __name__ == "__main__":
    text = "\n".join([HEADING, *requests(), ""])
    with open("office.csv.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())
