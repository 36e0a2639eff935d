"""Settings of the three processes, read once at the start: defaults < file < environment < flags.

Only this folder touches the environment. A variable is FEDPLCC_ and the field's name in capitals: FEDPLCC_STATE_DIR. A file
is TOML with a table per process. The configuration of runs is in shared/config/run.py.
"""

from __future__ import annotations

from fedplcc.shared.config.settings.environment import (
    INVITATION,
    cache_folder,
    confine_ray_to_loopback,
    disable_ray_usage_reports,
    disable_tracker_reports,
    environment_without_settings,
    invitation_in_environment,
    limit_threads,
    steady_parts_on_loopback,
    thread_limits,
    visible_cuda_devices,
    weights_folder,
)
from fedplcc.shared.config.settings.processes import (
    WEIGHTS,
    AggregatorSettings,
    GatewaySettings,
    Settings,
    TrainerSettings,
)
from fedplcc.shared.config.settings.reading import (
    EXIT_CONFIG,
    from_command_line,
    is_hidden,
    is_list,
    load,
    run_from_command_line,
)
