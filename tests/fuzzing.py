"""How hypothesis is bounded where an example costs a request or more."""

from hypothesis import HealthCheck, Phase, settings

# What makes an example slow here is the server.
SLOW = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
    HealthCheck.function_scoped_fixture,
)


def bounded(examples: int, *, at_random: bool = False, steps: int = 50) -> settings:
    """That many examples: the same ones each time, or others each time, made as small as they can be on a fault."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=not at_random,
        phases=(Phase.generate, Phase.shrink) if at_random else (Phase.generate,),
        suppress_health_check=SLOW,
    )
