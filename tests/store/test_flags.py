"""Flags in gflags' forms and from a file, with one meaning and one check through every door."""

import builtins
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.flags import FlagTable, Kind, Standing, check_config, not_built, setting, unmeaning


@dataclass(frozen=True)
class Config:
    config_path: str = setting(Kind.TEXT, "", "A file.")
    port: int = setting(Kind.PORT, 50001, "A port.", minimum=0)
    peer_port: int = setting(Kind.PORT, 1, "A port that must be given.")
    pretty: bool = setting(Kind.BOOL, False, "A switch.")
    notes: bool = setting(Kind.BOOL, True, "A switch whose name starts like a negation.")
    ratio: float = setting(Kind.FLOAT, 0.9, "A ratio.", minimum=0.0, maximum=1.0)
    count: int = setting(Kind.INT, 3, "A count.", minimum=1)
    ttl_ms: int = setting(Kind.DURATION, 10_000, "A time.", flag="ttl", unit="s", minimum=1_000)
    room: int = setting(Kind.SIZE, 1 << 20, "A size.")
    host: str = setting(Kind.HOST, "0.0.0.0", "A host.")
    masters: tuple[Endpoint, ...] = setting(Kind.ENDPOINTS, (Endpoint("a", 1),), "Addresses.")
    mode: str = setting(Kind.TEXT, "fast", "A choice.", choices=("fast", "safe"), choices_not_built=("rdma",))
    token: str = setting(Kind.TEXT, "", "A secret.", secret=True)
    backend: str = setting(Kind.TEXT, "", "A connection string.")
    peers: tuple[Endpoint, ...] = setting(Kind.ENDPOINTS, (), "A list.", alias="p", is_list=True)

    def __post_init__(self) -> None:
        check_config(self)


TABLE = FlagTable(
    "prog",
    "Does things.",
    Config,
    (
        *unmeaning(Kind.INT, 4, "max_threads", note="threads are chosen"),
        *unmeaning(Kind.BOOL, True, "tcp_no_delay"),
        *not_built(Kind.BOOL, False, "enable_ha"),
        *not_built(Kind.TEXT, "off", "fanout"),
    ),
)


def load(*argv: str) -> Config:
    return TABLE.load(argv).config


def test_no_flags_give_the_defaults() -> None:
    assert load() == Config()


@pytest.mark.parametrize(
    "form", [["--port", "7"], ["--port=7"], ["-port", "7"], ["-port=7"], ["--port", " 7 "]]
)
def test_a_value_follows_in_every_form(form: list[str]) -> None:
    assert load(*form).port == 7


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--pretty"], True),
        (["-pretty"], True),
        (["--pretty=true"], True),
        (["--pretty=1"], True),
        (["--pretty", "true"], True),
        (["--pretty", "false"], False),
        (["--pretty=False"], False),
        (["--nopretty"], False),
        (["-nopretty"], False),
        (["--pretty", "--nopretty"], False),
        (["--nopretty", "--pretty", "--port", "1"], True),
    ],
)
def test_a_switch_has_all_of_gflags_forms(argv: list[str], expected: bool) -> None:
    assert load(*argv).pretty is expected


def test_a_switch_that_starts_with_no_is_itself() -> None:
    assert load("--notes=false").notes is False
    assert load("--nonotes").notes is False
    assert load("--notes").notes is True


def test_dashes_in_a_name_are_underscores() -> None:
    assert load("--peer-port", "9").peer_port == 9


def test_the_last_of_several_wins() -> None:
    assert load("--port=1", "--port=2").port == 2


@pytest.mark.parametrize(
    "form",
    ["--peers a:1 b:2", "--peers=a:1,b:2", "-p a:1 --peers b:2", "--peers a:1,b:2 a:1", "-p=a:1 -p=b:2"],
)
def test_a_list_takes_words_and_adds_up(form: str) -> None:
    config = load(*form.split(), "--count", "5")
    assert (config.peers, config.count) == ((Endpoint("a", 1), Endpoint("b", 2)), 5)


def test_words_after_a_flag_that_is_no_list_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="unexpected argument 'b:2'"):
        load("--masters", "a:1", "b:2")


def test_every_kind_is_typed() -> None:
    config = load(
        "--ratio=0.5",
        "--count",
        "12",
        "--ttl",
        "5",
        "--room=1.5GB",
        "--host=[::1]",
        "--masters=[::1]:5,b:6",
        "--mode=SAFE",
    )
    assert config == Config(
        ratio=0.5,
        count=12,
        ttl_ms=5_000,
        room=3 << 29,
        host="::1",
        masters=(Endpoint("::1", 5), Endpoint("b", 6)),
        mode="safe",
    )
    assert load("--ttl=1500ms").ttl_ms == 1_500


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prot=1"], r"--prot is unknown; did you mean --port\?"),
        (["--golbal_room=1"], r"--golbal_room is unknown"),
        (["--zzz"], r"--zzz is unknown; --help lists all"),
        (["stray"], r"unexpected argument 'stray'"),
        (["--"], r"unexpected argument '--'"),
        (["-"], r"unexpected argument '-'"),
        (["--=3"], r" is unknown"),
        (["--pretty", "maybe"], r"unexpected argument 'maybe'"),
        (["--pretty=maybe"], r"--pretty: 'maybe' is not a bool"),
        (["--nopretty=true"], r"--nopretty: takes no value; write --pretty=true"),
        (["--noport"], r"--noport is unknown"),
        (["--port"], r"--port: a value must follow"),
        (["--port", "--pretty"], r"--port: port '--pretty' is not in 0..65535"),
        (["--port=65536"], r"--port: port '65536' is not in 0..65535"),
        (["--peer_port=0"], r"--peer_port: port '0' is not in 1..65535"),
        (["--ratio=1.5"], r"--ratio: 1.5 is not in 0.0..1.0"),
        (["--ratio=nan"], r"--ratio: 'nan' is not a number"),
        (["--count=0"], r"--count: 0 is not in 1\.\."),
        (["--count=1.5"], r"--count: '1.5' is not a whole number"),
        (["--count="], r"--count: '' is not a whole number"),
        (["--ttl=10ms"], r"--ttl: 10ms is not in 1s\.\."),
        (["--room=50%"], r"--room: '50%' is not a size"),
        (["--masters=a"], r"--masters: 'a' has no port"),
        (["--mode=slow"], r"--mode: 'slow' is unknown; choose one of fast, safe"),
        (["--mode=RDMA"], r"--mode: 'rdma' is not built yet; choose one of fast, safe"),
        (["--enable_ha"], r"--enable_ha=true: not built yet"),
        (["--fanout=enforce"], r"--fanout=enforce: not built yet"),
        (["--max_threads=x"], r"--max_threads: 'x' is not a whole number"),
        (["--flagfile=x"], r"--flagfile is unknown"),
    ],
)
def test_what_is_wrong_is_refused_by_name(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load(*argv)


def test_flags_without_meaning_warn_once_each() -> None:
    loaded = TABLE.load(["--max_threads=8", "--notcp_no_delay", "--max_threads=9"])
    assert loaded.config == Config()
    assert loaded.warnings == (
        "--max_threads has no meaning here and is ignored: threads are chosen",
        "--tcp_no_delay has no meaning here and is ignored",
    )


def test_flags_that_are_not_built_are_harmless_at_their_default() -> None:
    assert TABLE.load(["--noenable_ha", "--enable_ha", "false", "--fanout=off"]).warnings == ()


def test_the_constructor_refuses_what_the_flags_refuse() -> None:
    with pytest.raises(InvalidArgument, match=r"ratio: 2\.0 is not in"):
        Config(ratio=2.0)
    with pytest.raises(InvalidArgument, match=r"port: 70000 is not in 0\.\.65535"):
        Config(port=70000)
    with pytest.raises(InvalidArgument, match="count: True is not a int"):
        Config(count=True)
    with pytest.raises(InvalidArgument, match="mode: 'x' is unknown"):
        Config(mode="x")
    bad: Any = "12"
    with pytest.raises(InvalidArgument, match="room: '12' is not a size"):
        Config(room=bad)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return f"--config_path={path}"


FILE_VALUES = {
    "port": 7,
    "pretty": True,
    "ratio": 1,
    "ttl": "3s",
    "room": "16 MB",
    "masters": ["a:1", "[::1]:2"],
    "max_threads": 2,
}


def test_a_json_file_and_a_yaml_file_and_the_flags_agree(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    by_json = TABLE.load([write(tmp_path / "c.json", json.dumps(FILE_VALUES))])
    by_yaml = TABLE.load([write(tmp_path / "c.yaml", yaml.safe_dump(FILE_VALUES))])
    by_flags = load("--port=7", "--pretty", "--ratio=1", "--ttl=3s", "--room=16MB", "--masters=a:1,[::1]:2")
    for loaded in (by_json, by_yaml):
        assert {**vars(loaded.config), "config_path": ""} == vars(by_flags)
        assert len(loaded.warnings) == 1
        assert "max_threads has no meaning" in loaded.warnings[0]


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    argument = write(tmp_path / "c.json", '{"port": 7, "count": 5}')
    loaded = TABLE.load(["--port=8", argument])
    assert (loaded.config.port, loaded.config.count) == (8, 5)
    assert (loaded.sources["port"], loaded.sources["count"]) == ("flag", "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prot": 1}', r"c.json: prot is unknown; did you mean port\?"),
        ('{"port": "x"}', r"c.json: port: port 'x' is not in"),
        ('{"port": true}', r"c.json: port: port 'bool'"),
        ('{"port": null}', r"c.json: port: None is not a port"),
        ('{"port": 1, "port": 2}', r"'port' stands there twice"),
        ('{"pretty": 1}', r"c.json: pretty: 1 is not a bool"),
        ('{"mode": 5}', r"c.json: mode: 5 is not a text; put it in quotes"),
        ('{"room": {"a": 1}}', r"c.json: room: .* is not a size"),
        ('{"enable_ha": true}', r"c.json: enable_ha=true: not built yet"),
        ('{"config_path": "x"}', r"config_path cannot stand in the file itself"),
        ("[1]", r"holds a list, not names"),
        ("{", r"cannot be parsed"),
        ("[" * 100_000, r"cannot be parsed"),
        ('{"count": 1e400}', r"c.json: count: inf is not a whole number"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_naming_file_and_name(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TABLE.load([write(tmp_path / "c.json", text)])


def test_a_file_that_is_missing_binary_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read .*none\.json.*No such file"):
        load(f"--config_path={tmp_path / 'none.json'}")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument, match="cannot be parsed"):
        load(f"--config_path={tmp_path / 'b.json'}")
    with pytest.raises(InvalidArgument, match="is larger than"):
        load(write(tmp_path / "h.json", " " * (1 << 21)))


def test_yaml_without_pyyaml_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_yaml(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "yaml", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(InvalidArgument, match="pip install pyyaml, or use JSON"):
        load(write(tmp_path / "c.yml", "port: 1"))


def test_the_effective_configuration_is_complete_and_masked() -> None:
    loaded = TABLE.load(["--token=hunter2", "--backend=redis://me:hunter2@h:1/x", "--room=1GB"])
    text = "\n".join(loaded.effective())
    assert "hunter2" not in text
    assert "--token=******  (flag)" in text
    assert "--backend=redis://me:******@h:1/x  (flag)" in text
    assert "--room=1GiB  (flag)" in text
    assert "--ttl=10s  (default)" in text
    assert len(loaded.effective()) == len(vars(Config()))


def test_help_names_every_flag_with_its_default() -> None:
    text = TABLE.help_text()
    assert "--ttl  (duration, a bare number counts s; default 10s)" in text
    assert "--masters  (host:port,...; default a:1)" in text
    assert "One of: fast, safe." in text
    assert all(row.name in text for row in TABLE.flags)


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_prints_and_ends_well(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        TABLE.load_or_exit(["--port=x", flag])
    assert caught.value.code == 0
    assert "Usage: prog" in capsys.readouterr().out


def test_version_prints_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        TABLE.load_or_exit(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("prog ")


def test_a_bad_flag_ends_with_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        TABLE.load_or_exit(["--port=x"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "prog: --port: port 'x' is not in 0..65535\n"


@given(
    st.builds(
        Config,
        port=st.integers(0, 65535),
        pretty=st.booleans(),
        ratio=st.floats(0, 1),
        count=st.integers(1, 2**62),
        ttl_ms=st.integers(1_000, 10**12),
        room=st.integers(0, 2**60),
        host=st.sampled_from(["0.0.0.0", "::1", "some.host", ""]),
        masters=st.lists(
            st.builds(Endpoint, st.sampled_from(["a", "::1", "10.0.0.1"]), st.integers(1, 65535)),
            min_size=1,
            unique=True,
        ).map(tuple),
        mode=st.sampled_from(["fast", "safe"]),
    )
)
def test_the_printed_configuration_gives_the_same_one_again(config: Config) -> None:
    lines = TABLE.load([]).__class__(config, {}, (), TABLE.flags).effective()
    assert load(*[line.rpartition("  (")[0] for line in lines]) == config


@given(
    st.lists(
        st.text(max_size=12) | st.sampled_from(["--port", "--pretty", "--nopretty", "--count=3"]), max_size=6
    )
)
def test_any_arguments_are_understood_or_refused(argv: list[str]) -> None:
    if any("config_path" in argument for argument in argv):
        return
    with suppress(InvalidArgument):
        load(*argv)


def test_every_standing_is_explained() -> None:
    assert {row.standing for row in TABLE.flags} == set(Standing)
