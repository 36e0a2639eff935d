"""The keys of a user: none is lost where two commands keep theirs at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedplcc.gateway_client.own_keys import KEYS_FILE, forget_key, keep_key, key_for, user_folder
from fedplcc.shared.errors import InvalidConfig


def test_keys_that_are_kept_at_once_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    forget_key("https://nobody")
    assert not user_folder().exists()
    urls = [f"https://gateway-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda url: keep_key(url, f"key of {url}"), urls))
    assert [key_for(url) for url in urls] == [f"key of {url}" for url in urls]
    forget_key(urls[0])
    assert [key_for(url) for url in urls[:2]] == ["", f"key of {urls[1]}"]
    (user_folder() / KEYS_FILE).unlink()
    os.mkfifo(user_folder() / KEYS_FILE, 0o600)
    with pytest.raises(InvalidConfig, match="no regular file"):
        key_for(urls[1])
