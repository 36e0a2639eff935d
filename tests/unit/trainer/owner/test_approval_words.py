"""Words about a run that waits: all that leaves is in them, whatever the method."""

from __future__ import annotations

from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import parse_run_config
from fedplcc.trainer.owner.approval.asked import Asked
from fedplcc.trainer.owner.approval.words import GROUPS, facts_of, lines_of
from tests.support.records.method_settings import SETTINGS, public_of


def test_all_that_an_update_has_beside_its_model_is_in_words() -> None:
    for setting in SETTINGS:
        method, hyper = setting.method.name, dict(setting.hyper)
        run = {"method": method, "rounds": 3, "clients": ["ann"]}
        config = parse_run_config(
            {"run": run, "data": {"classes": ["a", "b"]}, **public_of(method, hyper), "method": hyper}
        )
        lines = dict(lines_of(facts_of(Asked(run_id="run-1", document=config.canonical_json, code={}))))
        said, groups = lines["leaves each round"], declared_uploads(config, 1)
        assert {name for name, words in GROUPS.items() if words in said} == groups.keys(), setting.name
        assert ("second moment" in said) == any("moment" in arrays for arrays in groups.values()), setting.name
