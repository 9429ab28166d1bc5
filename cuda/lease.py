"""Prints a summary of a table of `dsf bench`: counts of checks, those that failed, and times."""

import collections
import csv
import sys

table = sys.argv[1]
rows = {}
for row in csv.DictReader(open(table, newline="")):
    title = tuple(row[column] for column in ("kind", "case", "dtype", "peer"))
    rows.pop(title, None)  # the last row counts, and comes last
    rows[title] = row
rows = list(rows.values())
with open(table, "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
counts = collections.Counter((row["kind"], row["passed"]) for row in rows if row["passed"])
for (kind, passed), count in sorted(counts.items()):
    print(f"{kind}, passed {passed}: {count}")
for row in rows:
    if row["passed"] == "false":
        print("FAILED", row["kind"], row["case"], row["dtype"], row["peer"], row["distance"], "of", row["tolerance"], row["note"][:120])
microseconds = lambda text: f"{1e6 * float(text):10.1f}" if text else "         -"
for row in [row for row in rows if row["seconds"]][-110:]:
    print(f"{row['kind']:4} {row['case'][:56]:56} {row['dtype']:5}{microseconds(row['seconds'])} us, floor{microseconds(row['floor_seconds'])},",
          f"of floor {row['fraction_of_floor'][:5]:5} predicted {row['predicted'][:5]}", row["peer"][:40], row["peer_seconds"][:10] if "peer_seconds" in row else "")
