"""A session and a message of one price."""

from __future__ import annotations

from tests.conftest import Harness
from turnlog.client.model import Session

OWNER = ("tenant-00001", "user-0000001")


TEXT = (
    "Could you please check whether the order that I placed last Tuesday has already left the warehouse, and if it has, "
    "tell me which carrier is bringing it and on which day I should be at home to sign for the parcel? The shop promised "
    "delivery before the end of the week, but the page only says that the package is being prepared. I would also like "
    "to change the address to my office, because nobody is at home on working days, and I need the invoice with the name "
    "of the company on it. If the address can no longer be changed, please tell the carrier to leave the parcel with the "
    "neighbour on the left side."
)[:600]


FIXTURE = {"role": "user", "content": TEXT}


def filled(harness: Harness, messages: int) -> Session:
    """A session of so many messages, appended 25 a commit so that moto stays quick."""
    session = harness.log(*OWNER).sessions.create("session-0001")
    for at in range(0, messages, 25):
        batch = [
            {"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(at, min(at + 25, messages))
        ]
        session.append(*batch, idempotency_key=f"fill-{at}")
    return session
