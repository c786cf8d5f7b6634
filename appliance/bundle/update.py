"""An update from the slot in use into the other one, and back. Standard library only.

Every step may be the last one: what a cut update left is told by the record and the link alone, and
`settle` ends it. Until the link is moved, nothing that is in use is touched; after it, the old slot
stays whole until the next update.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from appliance.bundle import record as records
from appliance.bundle.errors import BundleError
from appliance.bundle.filling import python_version, room_needed
from appliance.bundle.fitting import check_machine
from appliance.bundle.folder import Opened, Say, Tell, silent
from appliance.bundle.layout import Layout, other
from appliance.bundle.machine import Machine
from appliance.bundle.record import Record, reached
from appliance.bundle.versions import check_step

TRIES = 3
"""Starts that a slot on trial has at boot."""
CUT_OFF = "it was cut off before the switch"


class AtWork(BundleError):
    """Another process updates this machine."""


class Updater:
    """One at a time on a machine."""

    def __init__(self, layout: Layout, machine: Machine, say: Say = lambda _: None) -> None:
        self._layout = layout
        self._machine = machine
        self._say = say

    def update(
        self, opened: Opened, *, allow_downgrade: bool = False, tell: Tell = silent
    ) -> Record:
        """Installs a bundle whose files were checked, and puts it in use. Ends with `done`; raises
        BundleError where the old version stays, or was put back."""
        with self._alone():
            self._require_end(self._settle())
            record = self._planned(opened, allow_downgrade=allow_downgrade)
            if self._layout.digest(record.old) == opened.digest:
                self._say(f"version {record.new_version} of this bundle is in use already")
                return replace(record, phase="done")
            self._write(record)
            reached("begun")
            self._build(record, opened, tell)
            self._machine.bring(record.new, opened, self._say)
            self._say("proves the new version: configuration, ledger, one decode")
            self._machine.prove(record.new)
            reached("proven")
            return self._go_over(record)

    def rollback(self, *, with_backup: bool = False) -> Record:
        """Puts the other slot in use again, if it is whole. With the backup that was made before
        the update where that version cannot use the ledger as it is now. Raises BundleError."""
        with self._alone():
            last = self._settle()
            self._require_end(last)
            old = self._in_use()
            new = other(old)
            there, back = self._layout.installed(old), self._layout.installed(new)
            if back is None:
                raise BundleError("the other slot is empty: there is no version to go back to")
            restored = ""
            if refusal := self._machine.refused(new):
                known = last is not None and (last.phase, last.new) == ("done", old)
                restored = last.backup if last is not None and known else ""
                if not (with_backup and restored):
                    hint = f" Its backup from before is {restored}: --with-backup restores it"
                    raise BundleError(
                        f"version {back.version} cannot use the ledger as it is now: {refusal}."
                        + (hint if restored else " Restore a backup that it made")
                    )
            digest = self._layout.digest(new)
            from_version = there.version if there is not None else "0.0.0"
            record = Record("building", old, new, from_version, back.version, digest)
            self._write(record)
            return self._go_over(record, restored)

    def settle(self) -> Record | None:
        """Ends an update that was cut off: forwards where the new slot is in use and becomes ready,
        else backwards. The record as it is then; None where there has been no update."""
        with self._alone():
            return self._settle()

    # -- forwards --------------------------------------------------------------------------------

    def _planned(self, opened: Opened, *, allow_downgrade: bool) -> Record:
        """Raises BundleError where the bundle may not be installed here."""
        old = self._in_use()
        there, manifest = self._layout.installed(old), opened.manifest
        check_machine(manifest)
        if there is not None:  # a damaged slot may be replaced by anything that is signed
            check_step(
                there.version,
                manifest.version,
                manifest.min_version,
                allow_downgrade=allow_downgrade,
            )
        from_version = there.version if there is not None else "0.0.0"
        new = other(old)
        return Record("building", old, new, from_version, manifest.version, opened.digest)

    def _build(self, record: Record, opened: Opened, tell: Tell) -> None:
        if self._layout.digest(record.new) == opened.digest:
            self._say(f"slot {record.new} is filled already")
            return
        wheels = opened.manifest.wheels_for(python_version())
        needed, room = room_needed(wheels), self._machine.room()
        if room < needed:
            raise BundleError(
                f"{self._layout.base} has {room >> 20} MiB free, and the update needs "
                f"{needed >> 20} MiB: free some space and begin again"
            )
        self._say(f"fills slot {record.new} with version {record.new_version}")
        self._machine.fill(record.new, opened, tell)

    def _go_over(self, record: Record, restored: str = "") -> Record:
        self._say("backs up the state")
        backup = self._machine.backup(record.old, record.old_version)
        reached("backed-up")
        record = replace(record, phase="switching", backup=backup, restore=restored)
        self._write(record)
        reached("switching")
        self._layout.switch(record.new)
        reached("switched")
        return self._try(record)

    def _try(self, record: Record) -> Record:
        """The new slot is in use; is it any good?"""
        if record.restore:
            self._machine.stop()
        self._ready_for(record)
        record = replace(record, phase="trial")
        self._write(record)
        reached("trial")
        self._say(f"version {record.new_version} is in use now")
        fault = self._machine.start()
        if fault is None:
            return record  # the next start of the box decides
        reached("started")
        last = records.read(self._layout.record) or record
        if not fault and last.phase in ("trial", "done"):
            return self._end(last, "done")
        last = self._return(last, fault or last.why)
        raise BundleError(
            f"version {record.new_version} did not become ready ({last.why}), and version "
            f"{record.old_version} is in use again"
        )

    def _ready_for(self, record: Record) -> None:
        """What the new slot needs beside the link; again does no harm."""
        if record.restore and self._machine.refused(record.new):
            self._say(f"restores {record.restore}")
            self._machine.restore(record.new, record.restore)
            reached("fitted")
        self._machine.place(record.new)

    # -- backwards -------------------------------------------------------------------------------

    def _return(self, record: Record, why: str, *, boot: bool = False) -> Record:
        """Puts the old slot in use again. At boot what starts it is systemd."""
        if record.phase != "returned":
            record = replace(record, phase="returning", why=why)
            self._write(record)
            reached("returning")
            if not boot:
                self._machine.stop()
            self._layout.switch(record.old)
            reached("returned-link")
            self._machine.place(record.old)
            if record.backup and (record.restore or self._machine.refused(record.old)):
                self._say(f"restores {record.backup}, which the old version can use")
                self._machine.restore(record.old, record.backup)
                reached("restored")
        if not boot and (fault := self._machine.start()):
            record = replace(record, why=f"{record.why}; the old version: {fault}")
        return self._end(record, "returned")

    # -- what was cut off ------------------------------------------------------------------------

    def _settle(self) -> Record | None:
        record = records.read(self._layout.record)
        if record is None or record.phase not in records.OPEN:
            return record
        if record.phase == "returning":
            return self._return(record, record.why)
        if self._layout.in_use() == record.new:
            return self._try(record)
        return self._end(replace(record, why=CUT_OFF), "stopped")

    def before_start(self) -> Record | None:
        """At boot, before the box is started: counts the starts of a slot on trial, and returns to
        the old one when they were enough."""
        record = records.read(self._layout.record)
        if record is None or record.phase not in records.OPEN:
            return record
        on_trial = self._layout.in_use() == record.new
        if record.phase == "returning":
            return self._return(record, record.why, boot=True)
        if record.phase == "building":
            return record  # it may be at work right now
        if not on_trial:
            return self._end(replace(record, why=CUT_OFF), "stopped")
        if record.attempts >= TRIES:
            return self._return(record, f"{TRIES} starts did not make it ready", boot=True)
        if record.phase == "switching":
            self._ready_for(record)
        counted = replace(record, phase="trial", attempts=record.attempts + 1)
        self._write(counted)
        return counted

    def after_start(self) -> Record | None:
        """Once the box has said that it is ready."""
        record = records.read(self._layout.record)
        if record is None or record.phase != "trial" or self._layout.in_use() != record.new:
            return record
        return self._end(record, "done")

    def after_refusal(self) -> Record | None:
        """When the box has ended because it cannot use its configuration: systemd does not start it
        again, so a slot on trial goes back at once. None where nothing was to be done: there is no
        trial, or the update is at work and sees it for itself."""
        try:
            with self._alone():
                record = records.read(self._layout.record)
                if record is None or record.phase != "trial":
                    return None
                if self._layout.in_use() != record.new:
                    return None
                return self._return(record, "it cannot use the configuration", boot=True)
        except AtWork:
            return None

    @staticmethod
    def _require_end(record: Record | None) -> None:
        if record is not None and record.phase == "trial":
            raise BundleError(
                f"version {record.new_version} has not been started yet, so it may still go back: "
                "start the box first"
            )

    # -- the record ------------------------------------------------------------------------------

    def _in_use(self) -> str:
        name = self._layout.in_use()
        if name is None:
            raise BundleError(
                f"nothing is installed in {self._layout.base}: run the bundle's install.sh as root"
            )
        return name

    def _write(self, record: Record) -> None:
        records.write(self._layout.record, record)

    def _end(self, record: Record, phase: str) -> Record:
        before = records.read(self._layout.record)
        record = replace(record, phase=phase)
        self._write(record)
        reached(phase)
        # The guard has noted it already where it was there first, as it is when systemd starts it.
        if phase in ("done", "returned") and (before is None or before.phase != phase):
            self._machine.note(record)
        return record

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._in_use()
        try:
            lock = os.open(self._layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BundleError(
                f"{self._layout.lock} cannot be written ({error.strerror}): run it as root"
            ) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise AtWork("another update is at work: wait for its end") from None
            yield
        finally:
            os.close(lock)
