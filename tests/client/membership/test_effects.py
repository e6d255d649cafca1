"""Collecting the effects of an event."""

from barnabas_client.membership.effects import Coordinator, Disconnect, Note, Outbox, Send
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest


def test_effects_are_taken_once_and_in_order() -> None:
    out, there, request = Outbox(), Coordinator(1, "h", 9092), FindCoordinatorRequest(coordinator_keys=["g"])
    out.note("found", node=1)
    ticket = out.send(request, there, 5.0)
    out.warn("lost")
    out.put(Disconnect(there, "why"))
    assert out.take() == [
        Note("found", {"node": 1}),
        Send(ticket, request, there, 5.0),
        Note("lost", warns=True),
        Disconnect(there, "why"),
    ]
    assert out.take() == []


def test_tickets_are_different() -> None:
    out = Outbox()
    tickets = [out.ticket(), out.send(FindCoordinatorRequest(coordinator_keys=[]), None, 1.0), out.ticket()]
    assert len(set(tickets)) == 3
