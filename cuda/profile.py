"""Prints the time of each kernel in a profile by ncu, as microseconds per step, the longest first.

    ncu --metrics gpu__time_duration.sum --csv ... | python3 cuda/profile.py STEPS
"""

import collections
import csv
import sys

lines = [line for line in sys.stdin if line.startswith('"')]
totals, counts = collections.Counter(), collections.Counter()
scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
for row in csv.DictReader(lines):
    if not row["Metric Value"]:
        continue
    name = f"{row['Kernel Name'].split('(')[0][:70]} {row['Grid Size']} {row['Block Size']}".replace(", ", ",")
    totals[name] += float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]
    counts[name] += 1
steps = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
print(f"{sum(totals.values()) / steps:10.1f} us in {sum(counts.values()) / steps:.0f} kernels")
for name, total in totals.most_common(int(sys.argv[2]) if len(sys.argv) > 2 else 1000):
    print(f"{total / steps:10.1f} us {counts[name] / steps:6.1f} x {name}")
