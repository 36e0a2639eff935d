"""Messages of evaluation reports."""

from __future__ import annotations

from fedplcc.shared.bounds import CONFIDENCE_BINS, MAX_CONFUSED_CLASSES, SCORE_BINS
from fedplcc.shared.convert.reading.fields import (
    MAX_CLASSES,
    at_least,
    bounded_map,
    bounded_text,
    limited,
    message_like,
    present,
)
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2, types_pb2
from fedplcc.shared.types import Evaluation, EvaluationCounts, ScoreHistograms


def counts_to_proto(counts: EvaluationCounts) -> types_pb2.EvaluationCounts:
    """Return the message of one evaluation set's counts."""
    histograms = None if counts.histograms is None else message_like(types_pb2.ScoreHistograms, counts.histograms)
    return message_like(types_pb2.EvaluationCounts, counts, histograms=histograms)


def counts_from_proto(message: types_pb2.EvaluationCounts) -> EvaluationCounts:
    """Return the counts of one evaluation set, unchecked."""
    correct = limited("correct", message.correct, MAX_CLASSES)
    total = limited("total", message.total, MAX_CLASSES)
    confusion = limited("confusion", message.confusion, MAX_CONFUSED_CLASSES**2)
    return EvaluationCounts(
        bounded_text("set_name", message.set_name),
        bounded_text("model", message.model),
        tuple(correct),
        tuple(total),
        tuple(confusion),
        _histograms_from_proto(message.histograms) if message.HasField("histograms") else None,
    )


def _histograms_from_proto(message: types_pb2.ScoreHistograms) -> ScoreHistograms:
    most = MAX_CONFUSED_CLASSES * SCORE_BINS
    return ScoreHistograms(
        of_class=tuple(limited("of_class", message.of_class, most)),
        of_others=tuple(limited("of_others", message.of_others, most)),
        confidence=tuple(limited("confidence", message.confidence, CONFIDENCE_BINS)),
        confidence_correct=tuple(limited("confidence_correct", message.confidence_correct, CONFIDENCE_BINS)),
    )


def evaluation_to_report(
    evaluation: Evaluation, *, run_id: str, round_number: int, instance_token: str
) -> round_service_pb2.ReportEvaluationRequest:
    """Return the request that reports an evaluation; without the domain, which the aggregator knows."""
    return round_service_pb2.ReportEvaluationRequest(
        run_id=run_id,
        round=round_number,
        client_id=evaluation.client_id,
        instance_token=instance_token,
        counts=map(counts_to_proto, evaluation.counts),
        timings=evaluation.timings,
    )


def evaluation_from_report(request: round_service_pb2.ReportEvaluationRequest, *, domain: str) -> Evaluation:
    """Return the evaluation of a request, for a client of this domain."""
    present("run_id", request.run_id)
    at_least(0, "round", request.round)
    return Evaluation(
        client_id=request.client_id,
        domain=domain,
        counts=tuple(map(counts_from_proto, limited("counts", request.counts))),
        timings=bounded_map("timings", request.timings),
    )


def evaluation_to_proto(round_number: int, evaluation: Evaluation) -> run_service_pb2.ClientEvaluation:
    """Return the message of one client's counts in one round, without timings."""
    return run_service_pb2.ClientEvaluation(
        round=round_number,
        client_id=evaluation.client_id,
        domain=evaluation.domain,
        counts=map(counts_to_proto, evaluation.counts),
    )


def evaluation_from_proto(message: run_service_pb2.ClientEvaluation) -> tuple[int, Evaluation]:
    """Return a round's number and one client's counts in it."""
    counts = tuple(map(counts_from_proto, message.counts))
    return message.round, Evaluation(client_id=message.client_id, domain=message.domain, counts=counts)
