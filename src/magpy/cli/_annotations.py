"""`magpy annotations`: list them, show one, hold them against the live functions."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import sys
import warnings
from typing import Any

from magpy_annotations import (
    Annotation,
    Input,
    Read,
    Registry,
    UnknownTargetError,
    default_registry,
    render,
    resolve,
)
from magpy_annotations.catalogue import OWNER
from magpy_annotations.conformance import (
    EXEMPT_FROM_ANNOTATION,
    EXEMPT_FROM_CHECKS,
    MODULES,
    c_callables,
    check,
    samples,
    unannotated,
)

_READS = {
    Read.NONE: "nothing",
    Read.TYPE: "its type",
    Read.LENGTH: "its length",
    Read.KEY: "one key",
    Read.ITEMS: "the references that it holds",
    Read.DEEP: "all of it",
}


def add_arguments(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser("annotations", help="list, show or check what is said of C functions")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("list", help="all annotated operations, with who registered them")
    action.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="a target, with * and ?")
    action = actions.add_parser("show", help="the annotation of one operation")
    action.add_argument("name", metavar="NAME", help="its dotted name, such as builtins.list.append")
    action = actions.add_parser("check", help="run operations on samples and compare with their annotations")
    action.add_argument(
        "module", nargs="?", metavar="MODULE", help="a module or an owner (default: all that packages have registered)"
    )


def main(options: argparse.Namespace) -> int:
    """Run the command; the exit status is 1 where something is not there or a check fails."""
    registry = _complete_registry()
    if options.action == "list":
        return _list(registry, options.pattern)
    if options.action == "show":
        return _show(registry, options.name)
    return _check(registry, options.module)


def _complete_registry() -> Registry:
    """The registry with all that it has: annotations wait until their module has been imported, so that is done here."""
    registry = default_registry()
    for name in (*MODULES, *registry.waiting()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return registry


def _list(registry: Registry, pattern: str) -> int:
    found = [each for each in registry if fnmatch.fnmatchcase(each.target, pattern)]
    width = max((len(each.target) for each in found), default=0)
    for each in found:
        print(f"{each.target:{width}}  {each.owner}")
    return 0 if found else 1


def _show(registry: Registry, name: str) -> int:
    annotation = _find(registry, name)
    if annotation is None:
        print(f"magpy: {name} has no annotation", file=sys.stderr)
        return 1
    print(render(annotation))
    print(f"registered by {annotation.owner or 'nobody named'}")
    if annotation.target != name:
        print(f"{name} is the same object")
    for form in (annotation, *annotation.overloads):
        for each in form.all_inputs():
            print(f"  {each.name}: {_words(each)}")
        print(f"  output: {form.output.relation.value}")
    if not annotation.pure_closure:
        print("  depends on more than its inputs, or changes more: a boundary")
    return 0


def _words(each: Input) -> str:
    parts = [f"reads {_READS[each.value_read]}"]
    if each.in_place:
        parts.append("updates it")
    if each.called:
        parts.append("calls it")
    if each.iterated:
        parts.append("iterates over it")
    return ", ".join(parts)


def _find(registry: Registry, name: str) -> Annotation | None:
    """By the target's name, or by the object that the name leads to."""
    with contextlib.suppress(KeyError):
        return registry.annotation(name)
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        break
    with contextlib.suppress(KeyError):
        return registry.annotation(name)
    try:
        return registry.find(resolve(name))[0]
    except UnknownTargetError:
        return None


def _check(registry: Registry, module: str | None) -> int:
    if module is not None:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    own = _objects(registry, module)  # a module may hand on what another one defines, as bisect does with _bisect's
    chosen = [each for each in registry if (each.target in own or _is_chosen(each, module)) and _is_there(each)]
    if not chosen:
        what = "no package has registered annotations" if module is None else f"nothing of {module} is annotated"
        print(f"magpy: {what}", file=sys.stderr)
        return 0 if module is None else 1
    tried, calls, unfit, exempt = 0, 0, list[str](), 0
    violations: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in chosen:
            if not _may_be_tried(each):
                exempt += 1
                continue
            found = samples(each)
            if not found:
                unfit.append(each.target)
                continue
            tried, calls = tried + 1, calls + len(found)
            violations += [str(violation) for violation in check(each, found)]
    for violation in violations:
        print(violation)
    problems = [*registry.conflicts(), *(f"{each}: names nothing here" for each in registry.unresolved())]
    problems = [each for each in problems if module is None or module in each]
    print(*problems, sep="\n", end="\n" * bool(problems))
    print(f"{len(chosen)} annotations: {tried} tried in {calls} calls, {len(violations)} violations")
    if exempt:
        print(f"{exempt} are not tried: they are impure, or exempt with a reason")
    if unfit:
        print(f"{len(unfit)} took no sample, write samples for them: {', '.join(unfit)}")
    if module is not None and module in sys.modules:
        missing = unannotated(registry, (module,), EXEMPT_FROM_ANNOTATION)
        if missing:
            print(f"{len(missing)} C callables have no annotation: {', '.join(missing)}")
    return 1 if violations or problems else 0


def _objects(registry: Registry, module: str | None) -> set[str]:
    """The targets of the C callables that a module has."""
    if module is None or module not in sys.modules:
        return set()
    found = (registry.lookup(live) for _, live in c_callables(module))
    return {each.target for each in found if each is not None}


def _is_chosen(annotation: Annotation, module: str | None) -> bool:
    if module is None:
        return annotation.owner != OWNER
    return annotation.owner == module or annotation.target.startswith(f"{module}.")


def _is_there(annotation: Annotation) -> bool:
    """Whether the target exists; `optional` ones are missing on some version."""
    try:
        resolve(annotation.target)
    except UnknownTargetError:
        return not annotation.optional
    return True


def _may_be_tried(annotation: Annotation) -> bool:
    exempt = any(fnmatch.fnmatchcase(annotation.target, pattern) for pattern in EXEMPT_FROM_CHECKS)
    return annotation.pure_closure and not annotation.effect and annotation.as_op_node is None and not exempt
