"""A trial with two metrics: a wider model is more accurate and slower.

    ganger tune --space 'width=16|32|64|128' --metric acc --max --also latency=min \\
        --constraint 'latency <= 50ms' --trials 4 -- python examples/tuning/two.py {width}
"""

from __future__ import annotations

import sys

width = int(sys.argv[1])
for epoch in range(1, 4):
    print(f"epoch {epoch}: acc={1 - 1 / width - 1 / (epoch * width):.4f} latency={width / 2000}")
