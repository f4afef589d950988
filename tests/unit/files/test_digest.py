from __future__ import annotations

from handoffd.files.atomic import digest_of


def test_text_and_its_bytes_have_one_digest() -> None:
    """What was projected as text is recognised in the bytes of the file."""
    assert digest_of("狀態\n") == digest_of("狀態\n".encode())


def test_a_changed_byte_changes_the_digest() -> None:
    """Texts are told apart."""
    assert digest_of(b"a") != digest_of(b"b")
