"""The one function that hides secrets in text: for printed configuration, log lines and refusals.

Owns what a secret looks like. It hides too much rather than too little: what follows a name such as
`password` is a secret whatever it was meant to be. Standard library only.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "******"

_NAMES: Final = (
    r"(?:[a-z0-9]+[_.-])*(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key"
    r"|secret[_-]?key|private[_-]?key|auth[_-]?key|credentials?|signature)"
)
_RULES: Final = (
    # scheme://user:secret@host and scheme://secret@host; a password may hold @ and / itself, up to the last @
    # before a blank or quote.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@'\"]*:)[^\s'\"]*@", re.IGNORECASE), rf"\1{MASK}@"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/:@'\"]+@", re.IGNORECASE), rf"\1{MASK}@"),
    # Authorization: Bearer secret
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1 {MASK}"),
    # password=secret, token: secret, "api_key": "secret"
    (
        re.compile(rf"(\b{_NAMES}['\"]?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&'\")}}\]]+)", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)


def mask_secrets(text: str) -> str:
    """The text with passwords and tokens replaced by `MASK`; applied twice it changes nothing more."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
