"""Print what the committed results fall short of. Ends with 1 when there is anything.

python benchmarks/check.py
"""

from __future__ import annotations

import json
import sys

from recording import RESULTS, shortfalls


def main() -> int:
    missing = 0
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        short = {item.figure for item in shortfalls(record)}
        print(
            f"{record['benchmark']}  ({record['date']}, {record['machine']['name']}, {record['machine']['cores']} cores)"
        )
        for figure, asked in record["asked"].items():
            value = record["summary"].get(figure)
            shown = "not measured" if value is None else f"{value:.4g}"
            print(f"  {'short' if figure in short else 'ok   '}  {figure:<36} {shown:>12}   asked {asked}")
        missing += len(short)
    if not missing:
        print("nothing falls short")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
