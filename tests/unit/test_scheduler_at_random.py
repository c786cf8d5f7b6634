"""The scheduler under random work: every cell and every token stays accounted for."""

from hypothesis import settings

from tests.unit.scheduler_machine import SchedulerMachine


class DraftingMachine(SchedulerMachine):
    draft_tokens = 5


TestSchedulerAtRandom = SchedulerMachine.TestCase
TestSchedulerAtRandom.settings = settings(max_examples=60, stateful_step_count=25)
TestDraftingSchedulerAtRandom = DraftingMachine.TestCase
TestDraftingSchedulerAtRandom.settings = settings(max_examples=60, stateful_step_count=25)
