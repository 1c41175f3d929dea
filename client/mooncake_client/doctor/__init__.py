"""`mooncake doctor`: are installation, machine and master well, and how is each node reached?

`examine` does it all. Each check has a verdict, its reason and a remedy, and a deadline; one that is late or
breaks is a finding as well, and the others go on.
"""

from __future__ import annotations

from mooncake_client.doctor.checks import EXIT_STATUS, Check, as_json, as_lines, worst
from mooncake_client.doctor.examination import examine

__all__ = ["EXIT_STATUS", "Check", "as_json", "as_lines", "examine", "worst"]
