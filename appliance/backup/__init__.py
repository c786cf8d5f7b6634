"""Backups of a box: ledger, keys, certificates, configuration, forecasters, models' manifests.

A backup is one file: a tar archive, compressed and, with a passphrase, encrypted, whose first
member is a manifest with the size and SHA-256 of all others. It holds secrets, so mode 0600.
"""

from appliance.backup.errors import BackupError, NothingToBackUp
from appliance.backup.facts import Restored, Taken, Tell, Verified
from appliance.backup.listing import Listed, backups, is_sealed
from appliance.backup.restoring import finish, restore
from appliance.backup.taking import take
from appliance.backup.verifying import verify

__all__ = [
    "BackupError",
    "Listed",
    "NothingToBackUp",
    "Restored",
    "Taken",
    "Tell",
    "Verified",
    "backups",
    "finish",
    "is_sealed",
    "restore",
    "take",
    "verify",
]
