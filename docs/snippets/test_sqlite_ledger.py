import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_ledger import SQLiteLedger

from idemguard import Ledger
from idemguard.testing.contract import LedgerContract


class TestSQLiteLedger(LedgerContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "ledger.db")

    def make_ledger(self) -> Ledger:
        return SQLiteLedger(self.path)

    def advance(self, seconds: float) -> None:
        # Entries are made older, which is quicker than to wait.
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("UPDATE records SET written = written - ?", (seconds,))
