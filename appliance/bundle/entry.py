"""The installer's command line: `python3 -I -B installer TASK ...`. Standard library only.

A bundle brings it as a folder beside its install.sh, and an installed box keeps it outside of its
slots, to look after an update at boot. Nothing of the bundle but this folder runs before the
signature and every file have been checked.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from appliance.bundle.errors import BundleError
from appliance.bundle.folder import Opened, check_files, open_bundle
from appliance.bundle.install import install, next_steps
from appliance.bundle.layout import Layout
from appliance.bundle.machine import RealMachine
from appliance.bundle.minisign import PublicKey, is_file, parse_keys, read_small
from appliance.bundle.unit import Unit
from appliance.bundle.update import Updater

FAILED = 1
UNUSABLE = "2"
"""Exit status of a box that cannot use its configuration; systemd does not start it again."""
UNITS = ("steelyard-firstboot.service", "steelyard.service")
_BAR = 30


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.task(options) or 0)
    except BundleError as error:
        print(f"steelyard: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nsteelyard: interrupted; run it again", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="steelyard-installer", allow_abbrev=False)
    tasks = parser.add_subparsers(required=True, metavar="TASK")
    verify = tasks.add_parser("verify", help="check a bundle's signature and files")
    verify.set_defaults(task=_verify)
    new = tasks.add_parser("install", help="install a bundle on this machine")
    new.set_defaults(task=_install)
    new.add_argument("--no-start", action="store_true", help="start nothing")
    new.add_argument("--no-selftest", action="store_true", help="load no model")
    new.add_argument("--appliance", action="store_true", help="the machine is nothing but a box")
    for task in (verify, new):
        task.add_argument("folder", type=Path, metavar="BUNDLE")
        task.add_argument("--key", help="the public key that it must be signed with, or its file")
    guard = tasks.add_parser("guard", help="look after an update at boot")
    guard.add_argument("when", choices=("before", "ready", "ended"))
    guard.set_defaults(task=_guard)
    for task in (verify, new, guard):
        task.add_argument("--root", type=Path, default=Path("/"), help="a tree in place of /")
    return parser


def _verify(options: argparse.Namespace) -> None:
    opened = _checked(options)
    manifest = opened.manifest
    print(
        f"ok: Steelyard {manifest.version}, {len(manifest.files)} files, "
        f"{manifest.size >> 20} MiB, signed with {opened.key.name}: {opened.comment}"
    )


def _install(options: argparse.Namespace) -> None:
    layout = Layout(options.root.absolute())
    whole = options.root == Path("/")
    unit = Unit.of_machine() if whole else None
    opened = _checked(options)
    install(
        layout,
        RealMachine(layout, unit),
        opened,
        appliance=options.appliance,
        prove=not options.no_selftest,
        say=_say,
        tell=lambda done, total: _progress("fills", done, total),
    )
    started = unit is not None and not options.no_start
    if unit is not None:
        unit.reload()
        if started and (fault := unit.start_first(UNITS)):
            raise BundleError(f"it is installed, and did not start: {fault}")
    print(next_steps(layout, started=started))


def _guard(options: argparse.Namespace) -> None:
    layout = Layout(options.root)
    if options.when == "ended":
        _guard_end(layout, os.environ)
        return
    updater = Updater(layout, RealMachine(layout, None), _say)
    record = updater.before_start() if options.when == "before" else updater.after_start()
    if record is not None and record.phase not in ("done", "stopped"):
        _say(f"update to {record.new_version}: {record.phase} {record.why}")


def _guard_end(layout: Layout, environ: Mapping[str, str]) -> None:
    """`environ` says how the box ended (systemd.exec). Of a status that systemd starts it again
    after, the starts decide."""
    if (environ.get("EXIT_CODE"), environ.get("EXIT_STATUS")) != ("exited", UNUSABLE):
        return
    unit = Unit.of_machine() if layout.root == Path("/") else None
    record = Updater(layout, RealMachine(layout, unit), _say).after_refusal()
    if record is not None:
        _say(f"update to {record.new_version}: {record.phase}: {record.why}")
        if unit is not None:
            unit.start_soon()


def _checked(options: argparse.Namespace) -> Opened:
    opened = open_bundle(options.folder, _keys(options))
    check_files(opened, lambda done, total: _progress("checks", done, total))
    return opened


def _keys(options: argparse.Namespace) -> tuple[PublicKey, ...]:
    if not options.key:
        return Layout(options.root).trusted_keys()
    given: str = options.key
    return parse_keys(read_small(Path(given)) if is_file(given) else given)


def _say(text: str) -> None:
    print(f"steelyard: {text}", flush=True)


def _progress(what: str, done: int, total: int) -> None:
    """On a terminal only: one line that is drawn again and again."""
    if not sys.stderr.isatty():
        return
    share = done / total if total else 1.0
    bar = ("#" * round(share * _BAR)).ljust(_BAR, ".")
    end = "\n" if done == total else ""
    print(f"\r{what} [{bar}] {100 * share:3.0f} %", end=end, file=sys.stderr, flush=True)
