import hashlib

from fedplcc.trainer.reproducibility.randomness import derive_seed


def test_a_seed_is_a_function_of_its_parts_and_their_order() -> None:
    assert derive_seed("batches", 0, "a", 1) == derive_seed("batches", 0, "a", 1)
    parts = [("x", 1, 2), ("x", 2, 1), ("x", 12), ("x", "1", 2), ("x1", 2), ("x", 1, 2, 0)]
    assert len({derive_seed(*each) for each in parts}) == len(parts)


def test_a_seed_has_63_bits_of_sha256() -> None:
    expected = int.from_bytes(hashlib.sha256(b'["model",7]').digest()[:8], "big") >> 1
    assert derive_seed("model", 7) == expected < 2**63
