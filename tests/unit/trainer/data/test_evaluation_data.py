"""The evaluation data beside the repository, where a machine has it."""

import numpy as np
import pytest
from _pytest.mark.structures import MarkDecorator

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from tests.support import ROOT

DATA = ROOT.parent / "shared" / "data"
OFFICE = ("backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector")


def needs(folder: str) -> MarkDecorator:
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"needs ../shared/data/{folder} beside the repository"
    )


@needs("digit5")
@pytest.mark.parametrize("domain", ["mnist", "mnistm", "svhn", "synth_substitute", "usps"])
def test_digit5_loads_from_npz(domain: str) -> None:
    spec = f"npz:{DATA}/digit5/{domain}.npz"
    assert describe(spec) == {str(digit): 200 for digit in range(10)}
    data = load_dataset(spec, contract=DataSection(classes=tuple("0123456789")), samples_per_class=30)
    assert data.class_counts == (30,) * 10
    assert len(data.test) == 2000
    with np.load(DATA / "digit5" / f"{domain}.npz") as arrays:
        assert np.array_equal(data.test.images_NSS3, arrays["x_test"])


@needs("office10")
def test_office10_loads_from_class_folders() -> None:
    spec, contract = f"folder:{DATA}/office10/dslr", DataSection(classes=OFFICE, image_size=64)
    counts = describe(spec)
    assert list(counts) == sorted(OFFICE)
    data = load_dataset(spec, contract=contract)
    assert data.class_counts == tuple(counts[name] for name in OFFICE)
    assert len(data.train) + len(data.test) == 157
    assert data.unreadable == ()
    assert data.train.images_NSS3.shape[1:] == (64, 64, 3)
    assert data.train.images_NSS3.std(axis=(1, 2, 3)).min() > 1


@needs("office10")
def test_a_class_that_the_run_spells_otherwise_is_pointed_out() -> None:
    contract = DataSection(classes=("back_pack", *OFFICE[1:]))
    with pytest.raises(InvalidData, match=r"class folder 'backpack', .* did you mean 'back_pack'\?"):
        load_dataset(f"folder:{DATA}/office10/dslr", contract=contract)
