from __future__ import annotations

import pytest
from shop import handler

from idemguard.testing import Effects, deliver_with_crashes


def test_the_hidden_mail_is_caught() -> None:
    effects = Effects()
    with effects.watch("shop.mailer.send"):
        report = deliver_with_crashes(handler, {"order_id": "1", "amount": 5}, effects=effects)
    with pytest.raises(AssertionError, match="was done 2 times, not once"):
        report.assert_once()
