"""What /metrics shows of a native master, and that each line of it explains itself."""

import re
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mooncake_master.metrics import HELP, NAMES, VERB_NAMES, MetricsPage
from mooncake_store import _core


@pytest.fixture
def master() -> Iterator[_core.Master]:
    master = _core.Master(lane_host="127.0.0.1")
    master.start()
    yield master
    master.stop()


def native_names(master: _core.Master) -> set[str]:
    """Every name of `stats` but those of the verbs, which have one text for all."""
    of_verbs = re.compile(rf"({'|'.join(VERB_NAMES)})_(requests|failures|partial|items|failed)_?.*_total")
    return {name for name in master.stats() if not of_verbs.fullmatch(name)}


def test_every_native_number_is_explained_and_nothing_else_is(master: _core.Master) -> None:
    names = native_names(master)
    assert names == set(HELP)
    assert set(NAMES) <= names


def test_no_help_text_only_repeats_its_name(master: _core.Master) -> None:
    page, _ = MetricsPage(master, identity=dict).render()
    for family in text_string_to_metric_families(page.decode()):
        words = set(re.findall(r"[a-z]+", family.name.lower()))
        said = set(re.findall(r"[a-z]+", family.documentation.lower()))
        assert said - words, f"{family.name}: {family.documentation!r} tells nothing beyond the name"
        assert len(family.documentation.split()) >= 3, f"{family.name}: {family.documentation!r}"


def test_names_of_mooncake_are_used_where_it_has_the_metric(master: _core.Master) -> None:
    page, _ = MetricsPage(master, identity=dict).render()
    shown = {family.name for family in text_string_to_metric_families(page.decode())}
    for native, public in NAMES.items():
        assert public.removesuffix("_total") in shown
        assert f"master_{native}".removesuffix("_total") not in shown
