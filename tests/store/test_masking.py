"""Secrets do not survive `mask_secrets`, wherever in a text they stand; what is no secret does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store.masking import MASK, mask_secrets


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@host:6379/0",
        "redis://:hunter2@host",
        "etcd://root:p@ss/hunter2@10.0.0.1:2379,10.0.0.2:2379",
        "https://hunter2@host/path",
        "cannot reach mysql+pymysql://u:hunter2@db/x: refused",
        "host=db user=me password=hunter2 port=5432",
        "password = 'hunter2 with blanks'",
        'password: "hunter2, with a comma"',
        '{"api_key": "hunter2", "port": 1}',
        "{'access-key': 'hunter2'}",
        "https://bucket/x?X-Amz-Signature=hunter2&expires=1",
        "https://host/?token=hunter2#top",
        "Authorization: Bearer hunter2.hunter2",
        "authorization: basic aHVudGVyMjpodW50ZXIy",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "etcd.client.passphrase=hunter2;cert=x",
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    masked = mask_secrets(text)
    assert "hunter2" not in masked
    assert "aHVudGVyMjpodW50ZXIy" not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://user:pw@host:6379/0", f"redis://user:{MASK}@host:6379/0"),
        ("host=db password=pw port=5", f"host=db password={MASK} port=5"),
        ("a=1&token=pw&b=2", f"a=1&token={MASK}&b=2"),
        ('{"secret": "pw", "port": 1}', f'{{"secret": {MASK}, "port": 1}}'),
    ],
)
def test_what_stands_beside_a_secret_stays(text: str, expected: str) -> None:
    assert mask_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8080/metadata",
        "127.0.0.1:50001,[::1]:50001",
        "lending a@b at 10.0.0.1:1 to the master at 10.0.0.2:2, epoch 3",
        "tokens a batch: 4096",
        "the basic idea",
        "key 'user@example' is not there",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_secrets(text) == text


@given(st.text(max_size=200))
def test_masking_again_changes_nothing(text: str) -> None:
    once = mask_secrets(text)
    assert mask_secrets(once) == once


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\"@/:"), min_size=1),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\""), min_size=4),
)
def test_any_password_in_an_address_is_hidden(user: str, password: str) -> None:
    masked = mask_secrets(f"redis://{user}:{password}@host:1")
    assert masked == f"redis://{user}:{MASK}@host:1"
