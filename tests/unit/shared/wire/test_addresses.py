import pytest

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire import addresses


@pytest.mark.parametrize(
    ("address", "parts"),
    [("localhost:1", ("localhost", 1)), ("[::1]:50051", ("::1", 50051)), ("a.example:65535", ("a.example", 65535))],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert addresses.split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:50051", "h:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidConfig, match="HOST:PORT"):
        addresses.split_address(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", ""])
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_the_sentence_names_what_the_address_was_written_for() -> None:
    with pytest.raises(InvalidConfig, match="health = 'x': write HOST:PORT"):
        addresses.split_address("x", "health")
