"""Policy of Pollux (Qiao et al., OSDI 2021): accelerators go to jobs with the most gain of goodput; batches adapt.

Pollux searches allocations by a genetic algorithm and learns each job's goodput while it runs. This version allocates
greedily with the same objective and known goodput. A job with a fixed batch size keeps its number of accelerators.
"""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.options import Option, carry_out, options_of, restart_factor

ROUND_SECONDS = 60.0


class Pollux:
    """Policy that gives each job its smallest number of accelerators, the oldest first, then distributes the rest.

    Each step enlarges the job that raises the harmonic mean of all speed-ups most.
    """

    name = "pollux"
    round_seconds: float | None = ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        states = sorted(
            (*board.running.values(), *board.waiting.values()),
            key=lambda state: (state.placement is None or state.job.preemptible, state.job.arrival_seconds, state.name),
        )
        left = board.live_counts()
        options = {state.name: options_of(state, board) for state in states}
        picks: dict[str, Option] = {}
        for state in states:
            fitting = [option for option in options[state.name] if option.accelerators <= left[option.accelerator]]
            if fitting:
                least = min(fitting, key=lambda option: (option.accelerators, -option.goodput))
                picks[state.name] = least
                left[least.accelerator] -= least.accelerators
        self._grow(picks, options, left)
        for state in states:
            self._keep_unless_it_pays(state, picks, options, left, board)
        carry_out(picks, board)

    @staticmethod
    def _grow(picks: dict[str, Option], options: dict[str, list[Option]], left: dict[str, int]) -> None:
        """Allocate accelerators step by step, each to the job that gains most."""
        while True:
            best: tuple[float, str, Option] | None = None
            for name, now in picks.items():
                for option in options[name]:
                    more = option.accelerators - now.accelerators
                    if option.accelerator != now.accelerator or more <= 0 or more > left[now.accelerator]:
                        continue
                    base = options[name][0].goodput
                    gain = (base / now.goodput - base / option.goodput) / more
                    if gain > 1e-9 and (best is None or gain > best[0]):
                        best = gain, name, option
            if best is None:
                return
            _, name, option = best
            left[option.accelerator] -= option.accelerators - picks[name].accelerators
            picks[name] = option

    @staticmethod
    def _keep_unless_it_pays(
        state: JobState, picks: dict[str, Option], options: dict[str, list[Option]], left: dict[str, int], board: Board
    ) -> None:
        """Keep a running job's placement if the restart would cost more than the change gains."""
        pick = picks.get(state.name)
        kept = next((option for option in options[state.name] if option.is_kept), None)
        if pick is None or kept is None or pick.is_kept or pick.accelerator != kept.accelerator:
            return
        fits = kept.accelerators - pick.accelerators <= left[kept.accelerator]
        if fits and pick.goodput * restart_factor(state, board) <= kept.goodput:
            left[kept.accelerator] -= kept.accelerators - pick.accelerators
            picks[state.name] = kept
