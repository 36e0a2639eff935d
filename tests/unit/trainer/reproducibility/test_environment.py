from types import SimpleNamespace

import numpy
import pytest
import torch

from fedplcc.shared.errors import InvalidConfig
from fedplcc.trainer.reproducibility.environment import card_names, environment, resolve_device, resolve_devices


def with_devices(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_auto_is_the_first_cuda_device_or_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, 2)
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu") == torch.device("cpu")
    with_devices(monkeypatch, 0)
    assert resolve_device("auto") == torch.device("cpu")


@pytest.mark.parametrize(("count", "seen"), [(0, "no CUDA device"), (1, "cuda:0 to cuda:0")])
def test_a_device_that_is_not_there_is_named_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, count: int, seen: str
) -> None:
    with_devices(monkeypatch, count)
    with pytest.raises(InvalidConfig, match=f"'cuda:7' is not there: .* sees {seen}"):
        resolve_device("cuda:7")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CPU", "", "cuda:-1", "cpu "])
def test_another_name_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InvalidConfig, match="write auto, cpu, or cuda:N"):
        resolve_device(name)


def test_several_devices_are_of_one_kind_and_each_card_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, 2)
    assert resolve_devices("cuda:1,cuda:0") == (torch.device("cuda", 1), torch.device("cuda", 0))
    assert resolve_devices("cpu,cpu") == (torch.device("cpu"),) * 2
    assert resolve_devices("auto") == (torch.device("cuda", 0),)
    for names in ("cpu,cuda:0", "auto,auto"):
        with pytest.raises(InvalidConfig, match="are not of one kind"):
            resolve_devices(names)
    with pytest.raises(InvalidConfig, match="have one twice"):
        resolve_devices("cuda,cuda:0")
    with pytest.raises(InvalidConfig, match="'cuda:2' is not there"):
        resolve_devices("cuda:0,cuda:2")


def test_a_card_is_known_by_its_uuid_and_devices_are_recorded_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = [torch.device("cuda", number) for number in range(3)]
    uuids = {cards[0]: SimpleNamespace(uuid="uuid-a"), cards[1]: SimpleNamespace(uuid="uuid-b"), cards[2]: object()}
    monkeypatch.setattr(torch.cuda, "get_device_properties", uuids.__getitem__)
    assert card_names([*cards, torch.device("cpu")]) == ["uuid-a", "uuid-b", "cuda:2"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda card: "H200" if card.index else "A100")
    assert environment(cards[1]).device == "H200"
    assert environment(*cards).device == "1 x A100, 2 x H200"
    assert environment(torch.device("cpu"), torch.device("cpu")).device == "2 x cpu"


def test_the_record_names_packages_processor_and_device() -> None:
    record = environment(torch.device("cpu"))
    assert record.packages["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert record.packages["numpy"] == numpy.__version__
    assert {"torchvision", "pillow", "scipy"} <= record.packages.keys()
    assert torch.backends.cpu.get_cpu_capability() in record.cpu
    assert record.device == "cpu"
    assert record.platform
    assert environment(torch.device("cpu")) == record
