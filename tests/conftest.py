"""Hypothesis profiles; `--hypothesis-profile=NAME` picks one, `standard` is the default."""

import signal

from hypothesis import HealthCheck, Phase, settings

pytest_plugins = ["native_build"]

# A suite that a script started in the background inherits an ignored SIGINT and hands it on to its children;
# tests of Ctrl-C would then wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines are off everywhere: wall-clock time decides nothing here. The first two profiles draw the same
# examples each time, so that a change is judged by what it changed; nightly draws new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("quick", max_examples=30, stateful_step_count=30, derandomize=True, **_COMMON)
settings.register_profile("standard", max_examples=100, stateful_step_count=50, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2000, stateful_step_count=100, **_COMMON)
# For planted bugs (tests/mutants): the seed decides what is drawn; any failure will do, not the shortest one.
settings.register_profile(
    "mutants",
    max_examples=200,
    stateful_step_count=50,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    **_COMMON,
)
settings.load_profile("standard")
