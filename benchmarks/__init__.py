"""This store beside its peers and the raw limits, in interleaved rounds of one run; it decides no test.

`work.py` says what is measured and against which targets, `contenders/` how each contender does it,
`worker.py` is the process in which one runs, `rounds.py` takes turns, `report.py` and `plot.py` show what
came out.
"""
