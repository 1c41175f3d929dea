"""The digests are a wire contract: these vectors, made with xxHash 0.8.4's own library, never change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store import _core

SEED = 0x9E3779B185EBCA87

# length of bytes(range(256)) * 4, xxh64 with seed 0, with SEED
VECTORS = [
    (0, 0xEF46DB3751D8E999, 0x6EC6D05F61C7E7A7),
    (1, 0xE934A84ADB052768, 0x60508B0CED72C717),
    (3, 0xE5C7BB4533BC65DD, 0xA1552D556A299B24),
    (4, 0xFFCED8604453CC1E, 0xD485946465317D49),
    (5, 0xDD0274386E26030C, 0xF60DC54C180A9098),
    (7, 0x14CC643F630C72D2, 0x0FF0BA621EEC7A4E),
    (8, 0x884A173614B81B8D, 0x5EB050A7CB134CAE),
    (12, 0x424AF23F1F08DCA5, 0x3EE98C75AC20B9D6),
    (15, 0xA948F5F0F6ABAC2D, 0x25FC54E28CB3C71B),
    (16, 0x44B6EF2FB84169F7, 0xC633A2FB67580003),
    (31, 0xC346D2B59B4D8EE1, 0xA3C5EC38A60B7EA1),
    (32, 0xCBF59C5116FF32B4, 0xBFB3E4EF6096C49C),
    (33, 0x0C535D1ACAFB8EAD, 0x702E2AA8B96740BD),
    (36, 0xDDE0EF85E3AEF05C, 0x81F4779D1E362D90),
    (40, 0xF5DA40F1B11741E9, 0xF6E4AB86F1BD8336),
    (63, 0xE26AA9E2A95F8E4F, 0xB83BE1F91B39104D),
    (64, 0xF7C67301DB6713F0, 0x2006C268B7D34F54),
    (100, 0x6AC1E58032166597, 0x00278BDA0EE3F586),
    (256, 0x1FACBE8406CD904B, 0x0B8D47FE1516AF3E),
    (1024, 0x6F3914F18FE4DF57, 0xDAC5100D94914D1D),
]


@pytest.mark.parametrize(("length", "plain", "seeded"), VECTORS)
def test_xxh64_vectors(length: int, plain: int, seeded: int) -> None:
    data = (bytes(range(256)) * 4)[:length]
    assert _core.xxh64(data) == plain
    assert _core.xxh64(data, SEED) == seeded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        (b"The quick brown fox jumps over the lazy dog", 0x0B242D361FDA71BC),
    ],
)
def test_xxh64_of_well_known_texts(text: bytes, expected: int) -> None:
    assert _core.xxh64(text) == expected


@pytest.mark.parametrize(
    ("tenant", "key", "expected"),
    [
        ("", b"", 0xA258D6EC1FB5D95C),
        ("", b"key", 0x773FACACCB1391A3),
        ("default", b"key", 0x9570C2D167288173),
        ("default", b"model/layer-0/\x00\xff", 0xEAF9686E934E9DD1),
    ],
)
def test_key_digest_vectors(tenant: str, key: bytes, expected: int) -> None:
    assert _core.key_digest(tenant, key) == expected


@given(tenant=st.text(max_size=40), key=st.binary(max_size=80))
def test_key_digest_is_xxh64_seeded_by_the_tenants(tenant: str, key: bytes) -> None:
    assert _core.key_digest(tenant, key) == _core.xxh64(key, _core.xxh64(tenant.encode()))


@given(data=st.binary(max_size=100), before=st.binary(max_size=9))
def test_xxh64_does_not_depend_on_alignment(data: bytes, before: bytes) -> None:
    assert _core.xxh64(memoryview(before + data)[len(before) :]) == _core.xxh64(data)
