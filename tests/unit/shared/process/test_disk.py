from __future__ import annotations

import errno
import os
from pathlib import Path

from fedplcc.shared.process.disk import why_unusable


def test_a_folder_of_another_user_is_told_with_the_number_that_must_be_let_in() -> None:
    sentence = why_unusable(Path("/var/lib/fedplcc"), PermissionError(errno.EACCES, "Permission denied"))
    assert sentence.startswith("cannot use the state directory /var/lib/fedplcc: Permission denied; ")
    assert f"user id {os.geteuid()}" in sentence
    assert "--state-dir" in sentence


def test_another_trouble_is_told_in_the_systems_words_with_its_own_remedy() -> None:
    sentence = why_unusable(Path("state"), OSError(errno.EROFS, "Read-only file system"))
    assert sentence == "cannot use the state directory state: Read-only file system; mount it so that it can be written"
    unknown = why_unusable(Path("state"), OSError(errno.EXDEV, "Invalid cross-device link"))
    assert unknown == "cannot use the state directory state: Invalid cross-device link"
