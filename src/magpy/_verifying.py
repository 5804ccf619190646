"""Calls that are verified: the program serves them, and a copy of the process finds out what the records give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magpy_annotations import Registry
from magpy_codegen import forget_source
from magpy_runtime import Dispatcher, Record, RecordCache, raise_again, raise_built
from magpy_runtime.segments import Tree

from . import _torch
from ._chains import chain, run_mock
from ._monitor import Monitor, Run
from ._reasons import Boundary as Refusal
from ._refusals import shown_name, warn
from ._verify import Outcome, VerificationWarning, verify, verify_chain

if TYPE_CHECKING:
    from ._compiled import Config, Statistics


class Verifying(Dispatcher):
    """Serves calls natively, and compares with what records give in a copy of the process."""

    target: Callable[..., Any]
    config: Config
    cache: RecordCache
    tree: Tree
    statistics: Statistics

    def _verified(self, record: Record, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a hit natively, and compare with what the record gives in a copy of the process."""

        def served() -> Any:
            result = run_mock(record, bound)
            if record.raises:
                raise_built(result)
            return result

        def program() -> Any:
            with _torch.compiling():  # as the record was made
                return self.target(*args, **kwargs)

        def watch() -> list[str]:
            monitor = Monitor(self._registry())
            monitor.prepare(None, None, self.cache.unstable)
            run = monitor.run(self.target, args, kwargs)
            if run.failure is not None:
                return [str(run.failure)]
            failure = self._draft(monitor, run)
            if failure is not None:
                return [str(failure)]
            return new_facts(record, monitor.drafts[-1][1].record)

        outcome = verify(program, served, watch, self._roots(args, kwargs), self.config.backend_name)
        record.hits += 1
        if outcome.difference is not None:
            self._drop(record)
        return self._told(outcome)

    def _roots(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """What a call can reach, by name."""
        roots = [(f"argument {number}", arg) for number, arg in enumerate(args)]
        roots += [(f"argument {name}", arg) for name, arg in kwargs.items()]
        return [*roots, ("the function", self.target)]

    def _verified_chain(
        self, record: Record, bound: tuple[Any, ...], native: Callable[[], Any], roots: list[tuple[str, Any]]
    ) -> Outcome:
        """Compare what a segment and those that follow it give in a copy of the process with what the program gives."""
        trail: list[int] = []

        def program() -> Any:
            with _torch.compiling():  # as the records were made
                return native()

        outcome = verify_chain(program, chain(record, bound, trail), trail, roots, self.config.backend_name)
        if not outcome.served:
            if outcome.again:
                record.verified -= 1
            self._note(Refusal("unverified", outcome.unverified or ""))
            return outcome
        for cache in (self.cache, *[point.cache for point in [*self.tree.points.values()]]):
            for each in cache.records:
                used = outcome.trail.count(id(each))
                each.hits += used
                each.verified += bool(used) and each is not record
                if used and outcome.difference is not None:
                    cache.discard(each)
                    forget(each)
        return outcome

    def _told(self, outcome: Outcome) -> Any:
        """A call was served natively, for verification: say what was found, and give what the program gave."""
        self.statistics.hits += 1
        if outcome.unverified is not None:
            self._note(Refusal("unverified", outcome.unverified))
        if outcome.difference is not None:
            missing = f"; not guarded: {'; '.join(outcome.missing[:3])}" if outcome.missing else ""
            boundary = Refusal("verification-failed", outcome.difference + missing)
            self._note(boundary)
            warn(shown_name(self.target), boundary, VerificationWarning)
        if outcome.error is not None:
            raise_again(outcome.error)
        return outcome.result

    # -- what the rest of the class is for ------------------------------------------------------------------------------

    def _draft(self, monitor: Monitor, run: Run) -> Refusal | None:
        raise NotImplementedError

    def _drop(self, record: Record) -> None:
        raise NotImplementedError

    def _note(self, boundary: Refusal) -> str:
        raise NotImplementedError

    def _registry(self) -> Registry:
        raise NotImplementedError


def new_facts(old: Record, new: Record) -> list[str]:
    """What the guard of a record checks that another one's does not, in words: the reads, then those with other answers."""

    def checks(record: Record) -> dict[str, str]:
        lines = f"{record.guard_source}{record.held_source()[0]}".splitlines()
        pairs = [line.strip().partition("  # ") for line in lines if "  # " in line]
        return {words: code.partition(": return")[0] for code, _, words in pairs}

    known, found = checks(old), checks(new)
    unread = [words for words in found if words not in known]
    return unread + [words for words, code in found.items() if known.get(words, code) != code]


def forget(record: Record) -> None:
    """Undo what keeps a record's parts alive or known after it was dropped; calls that use it now are not disturbed."""
    forget_source(record.guard)  # type: ignore[arg-type]
    forget_source(record.mock)  # type: ignore[arg-type]
    if record.graph is not None:
        _torch.dismantle(record.graph.graph)


__all__ = ["Verifying", "forget", "new_facts"]
