"""Ways to spoil the blobs of an update, bytes under their right SHA-256: each public function is one, small and pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.chaos.fuzz_attempt import Blobs, Raw, Scene, flipped, laid_out, split, with_header


def flipped_bits(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: flipped(rng, blob, 0, len(blob)))


def flipped_bits_of_the_header(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: flipped(rng, blob, 0, len(blob) - len(split(blob)[1])))


def truncated_bytes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(
        rng, good, lambda blob: blob[: rng.choice([1, 7, 8, 9, len(blob) - 1, rng.randrange(1, len(blob))])]
    )


def bytes_behind_the_end(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: blob + rng.randbytes(rng.choice([1, 4, 8, 4096])))


def bytes_left_out_or_put_in(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        begin = rng.randrange(len(blob))
        put = rng.choice([b"", b"\x00", rng.randbytes(8), blob[:begin]])
        return (blob[:begin] + put + blob[begin + rng.choice([0, 1, 8]) :]) or b"\x00"

    return _spoil_one(rng, good, spoil)


def something_else_altogether(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    others = (b"\x80\x04\x95cposix\nsystem\n.", b"PK\x03\x04" * 50, b"\x00", b"\x00" * 4096, b"\xff" * 64, b"{}" * 9)
    return _spoil_one(rng, good, lambda blob: rng.choice([*others, rng.randbytes(rng.randrange(1, 2000))]))


def header_that_lies_about_its_length(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        (length,) = struct.unpack("<Q", blob[:8])
        lies = [0, 1, length - 1, length + 1, length + 8, len(blob), len(blob) - 8, 2**20 + 1, 2**31, 2**63, 2**64 - 1]
        return struct.pack("<Q", rng.choice(lies)) + blob[8:]

    return _spoil_one(rng, good, spoil)


def header_that_lies_about_offsets(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        begin, end = entry["data_offsets"]
        shift = rng.choice([1, 4, 8, -1, -4, 2**31])
        lies: list[Any] = [
            [begin + shift, end + shift],
            [begin, end + shift],
            [end, begin],
            [begin, begin],
            [0, len(data)],
            [-8, end],
            [float(begin), float(end)],
            [str(begin), str(end)],
            [False, end],
            [begin],
            [begin, end, end],
            {},
            None,
            [10**400, 10**400],
            [2**64, 2**64 + 8],
        ]
        entry["data_offsets"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


def header_that_lies_about_shapes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        shape = entry["shape"]
        lies: list[Any] = [
            [2**32, 2**32],
            [2**63, 2, 0],
            [-1, *shape],
            [*shape, -1],
            [0, *shape],
            [1] * 64 + shape,
            [float(size) for size in shape] or [1.0],
            [str(size) for size in shape] or ["1"],
            [[size] for size in shape] or [[1]],
            [True, *shape],
            None,
            "6",
            10,
            [10**400],
        ]
        entry["shape"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


def header_that_lies_about_dtypes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        lies: list[Any] = [
            "F64",
            "I64",
            "F32",
            "U32",
            "F16",
            "BF16",
            "f32",
            "",
            None,
            32,
            ["F32"],
            "F8_E4M3",
            "O",
            "C64",
        ]
        header[rng.choice(sorted(header))]["dtype"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


def header_with_other_keys(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        change = rng.choice(["less", "more", "metadata", "tensor", "none"])
        if change == "less":
            del entry[rng.choice(sorted(entry))]
        elif change == "more":
            entry["strides"] = [1]
        elif change == "metadata":
            header["__metadata__"] = rng.choice([{}, {"format": "pt"}, {"x": "y" * 500_000}, None, [], {"a": 1}])
        elif change == "tensor":
            header["more"] = rng.choice([{}, None, [], "x", {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}])
        else:
            header.clear()

    return _spoil_header(rng, good, spoil)


def header_that_is_odd_json(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        text, data = split(blob)
        first = text.rstrip()[1:-1].split(b"},")[0] + b"}"
        odd = [
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 300 + b"]" * 300,
            text[:1] + first + b"," + text[1:],  # the same name twice
            text.replace(b'"dtype"', b'"shape":[1],"dtype"', 1),
            b"\xef\xbb\xbf" + text,
            text.replace(b'"', b"\xff", 1),
            text.replace(b'"', b"'"),
            text.decode().encode("utf-16-le"),
            text.replace(b"0", b"NaN", 1),
            text.replace(b"[", b"[-0,", 1),
            text + b"\x00" * 8,
            text + text,
            b"[" + text + b"]",
            b"null",
            b"{}",
            b'"x"',
            b"1" * 100_000,
            text.replace(b"weight", b"\\ud800"),
            b" " * (2**20 + 8 - len(text)) + text,
            text + b" " * 8,
            b" " * 8 + text,
        ]
        return with_header(rng.choice(odd), data)

    return _spoil_one(rng, good, spoil)


def tensors_in_another_order(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        text, data = split(blob)
        header = json.loads(text)
        if rng.random() < 0.5:  # the same layout, told in another order
            names = rng.sample(sorted(header), len(header))
            return with_header(json.dumps({name: header[name] for name in names}, separators=(",", ":")).encode(), data)
        parts = {
            name: Raw(dtype=entry["dtype"], shape=tuple(entry["shape"]), data=data[slice(*entry["data_offsets"])])
            for name, entry in header.items()
        }
        return laid_out({name: parts[name] for name in rng.sample(sorted(parts), len(parts))})

    return _spoil_one(rng, good, spoil)


def _spoil_one(rng: Random, good: Blobs, spoil: Callable[[bytes], bytes]) -> Blobs:
    if rng.random() < 0.5:
        return replace(good, model=spoil(good.model))
    return replace(good, prototypes=spoil(good.prototypes))


def _spoil_header(rng: Random, good: Blobs, spoil: Callable[[dict[str, Any], bytes], None]) -> Blobs:
    def spoilt(blob: bytes) -> bytes:
        text, data = split(blob)
        header = json.loads(text)
        if header:
            spoil(header, data)
        return with_header(json.dumps(header, separators=(",", ":")).encode(), data)

    return _spoil_one(rng, good, spoilt)
