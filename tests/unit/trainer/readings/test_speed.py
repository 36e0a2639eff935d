"""Speed readings: means over the latest mini-batches, what of them is waiting, and silence of a trainer that is idle."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from fedplcc.trainer.readings import speed
from fedplcc.trainer.readings.speed import FRESH_S, NUM_LATEST, Speed, Step

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


class Hand:
    """A clock that the test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def train(measured: Speed, hand: Hand, *steps: tuple[int, float, float], prepare_s: float = 0.0) -> list[Step]:
    """A local training whose steps are these: number of samples, seconds of waiting for them, seconds of computing."""
    watch = measured.watch()
    hand.now_s += prepare_s
    watch.begin()
    done = []
    for num_examples, wait_s, compute_s in steps:
        hand.now_s += wait_s
        watch.has_batch(num_examples)
        hand.now_s += compute_s
        done.append(watch.done())
    return done


def test_readings_are_means_over_the_mini_batches() -> None:
    hand = Hand()
    measured = Speed(CPU, hand)
    steps = train(measured, hand, (4, 0.5, 1.5), (2, 0.25, 0.75), prepare_s=7.0)
    assert steps == [Step(4, 2.0, 0.5), Step(2, 1.0, 0.25)]
    assert measured.readings() == {"samples_per_second": 2.0, "batch_seconds": 1.5, "data_seconds": 0.375}


def test_old_mini_batches_count_no_more_and_a_later_training_goes_on() -> None:
    hand = Hand()
    measured = Speed(CPU, hand)
    train(measured, hand, *[(1, 0.0, 9.0)] * 30)
    train(measured, hand, *[(4, 0.5, 0.5)] * NUM_LATEST)
    assert measured.readings() == {"samples_per_second": 4.0, "batch_seconds": 1.0, "data_seconds": 0.5}


def test_an_idle_trainer_tells_no_speed_after_a_while() -> None:
    hand = Hand()
    measured = Speed(CPU, hand)
    train(measured, hand, (4, 0.5, 0.5))
    hand.now_s += FRESH_S
    assert measured.readings()["samples_per_second"] == 4.0
    hand.now_s += 0.1
    assert measured.readings() == {}


class Stream:
    """A GPU's: what is marked on it passes when the GPU comes there, by the GPU's own clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.fails = False
        self.devices: list[Any] = []


class Mark:
    """What torch.cuda.Event does as far as it is used, on a stream that the test moves."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.at_s = 0.0

    def record(self, stream: Stream) -> None:
        if stream.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.at_s = stream.now_s

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Mark) -> float:
        return 1000 * (end.at_s - self.at_s)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()

    def current_stream(device: torch.device) -> Stream:
        stream.devices.append(device)
        return stream

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(speed, "_new_mark", lambda: Mark(stream))
    return stream


def step_of(watch: speed.StepWatch, hand: Hand, stream: Stream) -> Step:
    """A step of 2 s by the host's clock; the GPU is done with the step before when the images come 0.25 s later."""
    hand.now_s += 1.5  # the host waits for the GPU to be done with the step before
    stream.now_s += 0.25
    watch.has_batch(8)
    hand.now_s += 0.5
    stream.now_s += 1.75
    return watch.done()


def test_on_a_gpu_waiting_is_measured_by_the_clock_of_the_trainers_own_device(stream: Stream) -> None:
    hand = Hand()
    measured = Speed(GPU, hand)
    watch = measured.watch()
    watch.begin()
    assert [step_of(watch, hand, stream) for _ in range(2)] == [Step(8, 2.0, 0.25)] * 2
    assert set(stream.devices) == {GPU}
    assert measured.readings() == {"samples_per_second": 4.0, "batch_seconds": 2.0, "data_seconds": 0.25}


def test_the_speed_of_very_long_mini_batches_is_told_until_the_next_but_one_is_due() -> None:
    hand = Hand()
    measured = Speed(CPU, hand)
    train(measured, hand, (4, 0.0, 10 * FRESH_S))
    hand.now_s += 19 * FRESH_S
    assert measured.readings()["batch_seconds"] == 10 * FRESH_S
    hand.now_s += 2 * FRESH_S
    assert measured.readings() == {}


def test_a_clock_of_the_gpu_that_fails_is_left_out_and_said_once(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.speed")
    hand = Hand()
    measured = Speed(GPU, hand)
    stream.fails = True
    for _ in range(2):
        watch = measured.watch()
        watch.begin()
        assert step_of(watch, hand, stream) == Step(8, 2.0, None)
    assert measured.readings() == {"samples_per_second": 4.0, "batch_seconds": 2.0}
    assert [record.getMessage().count("data_seconds") for record in caplog.records] == [1]
