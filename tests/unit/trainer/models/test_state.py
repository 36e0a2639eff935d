import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
from tests.unit.trainer.builders import a_config, a_model, digest

OTHER = a_config(run={"seed": 1})


def test_a_state_goes_to_numpy_and_back_unchanged() -> None:
    source, target = build_model(ModelSection(), 3, 16, 0), build_model(ModelSection(), 3, 16, 1)
    source.train()(torch.randn(2, 3, 16, 16))  # moves the statistics and the integer counters
    arrays = state_arrays(source)
    assert list(arrays) == list(source.state_dict())
    assert {str(array.dtype) for array in arrays.values()} == {"float32", "int64"}
    assert arrays["stem.1.num_batches_tracked"] == 1
    assert digest(target) != digest(source)
    load_arrays(target, arrays)
    assert digest(target) == digest(source)


def test_arrays_are_copies() -> None:
    model = a_model()
    before = digest(model)
    for array in state_arrays(model).values():
        array += 1
    assert digest(model) == before


def test_read_only_arrays_are_taken_and_not_aliased() -> None:
    arrays = {
        name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in state_arrays(a_model(OTHER)).items()
    }
    model = a_model()
    load_arrays(model, arrays)
    assert digest(model) == digest(a_model(OTHER))


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("classifier.bias", None, "'classifier.bias' missing, none unknown"),
        ("fc.weight", np.zeros(1, np.float32), "none missing, 'fc.weight' unknown"),
        (
            "classifier.bias",
            np.zeros(4, np.float32),
            r"'classifier.bias' is float32\[4\], but the model has float32\[3\]",
        ),
        ("classifier.bias", np.zeros(3), r"'classifier.bias' is float64\[3\], but the model has float32\[3\]"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    name: str, value: np.ndarray | None, sentence: str
) -> None:
    model, arrays = a_model(), {**state_arrays(a_model(OTHER)), name: value}
    before = digest(model)
    with pytest.raises(InvalidModel, match=sentence):
        load_arrays(model, {name: array for name, array in arrays.items() if array is not None})
    assert digest(model) == before


class Holding(nn.Module):
    def __init__(self, **buffers: torch.Tensor) -> None:
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


FLAT = torch.arange(10.0)


@pytest.mark.parametrize(
    "model",
    [
        Holding(a=FLAT, b=FLAT),
        Holding(a=FLAT[:5], b=FLAT[4:]),
        Holding(a=FLAT.reshape(2, 5), b=FLAT[9:]),
        Holding(a=FLAT, b=FLAT[3:4]),
    ],
)
def test_two_names_for_one_memory_are_refused(model: Holding) -> None:
    with pytest.raises(InvalidModel, match="share memory"):
        state_arrays(model)


def test_neighbours_in_one_memory_are_not_aliases() -> None:
    arrays = state_arrays(Holding(a=FLAT[:5], b=FLAT[5:], none=FLAT[:0], nothing=FLAT[:0]))
    assert arrays["b"].tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool])
def test_a_dtype_that_the_contract_does_not_carry_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InvalidModel, match=f"is {str(dtype)[6:]}; convert it to float32 or int64"):
        state_arrays(Holding(value=torch.zeros(2, dtype=dtype)))


def test_a_state_that_is_no_tensor_is_refused() -> None:
    class Extra(nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            return {"epoch": 3}

    with pytest.raises(InvalidModel, match="'_extra_state' is dict; keep only tensors"):
        state_arrays(Extra())


def test_a_transposed_tensor_arrives_in_row_major_order() -> None:
    arrays = state_arrays(Holding(a=torch.arange(6.0).reshape(2, 3).T))
    assert arrays["a"].flags["C_CONTIGUOUS"]
    assert arrays["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
