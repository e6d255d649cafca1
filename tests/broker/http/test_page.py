"""The files of the page, and the charts of groups, as HTTP responses."""

import gzip
import json
from collections.abc import Mapping
from importlib.resources import files

import aiohttp
import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.groups.journal import Journal
from barnabas_broker.http import assets, history
from barnabas_broker.http.endpoint import _CHARTS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import join_alone, make_topic
from tests.wire import Wire

#: The most that the files of the page may weigh.
_MOST_BYTES = 250 * 1024


async def ask(broker: BrokerServer, path: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    """A response with its body as it was sent."""
    given = {"Accept-Encoding": "identity", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"http://127.0.0.1:{broker.http_port}{path}", headers=given) as response,
    ):
        return response.status, response.headers, await response.read()


async def test_a_browser_gets_the_page_and_other_programs_the_paths(broker: BrokerServer, http: Http) -> None:
    status, headers, body = await ask(broker, "/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!doctype html>")
    assert "Accept" in headers["Vary"]
    index = await http.get("/")
    assert index.json["paths"]
    assert "Accept" in index.headers["Vary"]


async def test_the_page_may_load_its_own_files_only(broker: BrokerServer) -> None:
    _, headers, body = await ask(broker, "/", Accept="text/html")
    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert not [each for each in policy if "unsafe" in each or "http" in each or "*" in each]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"<style" not in body
    assert b" style=" not in body


@pytest.mark.parametrize("name", sorted(assets.load()))
async def test_a_file_is_sent_compressed_and_once(broker: BrokerServer, name: str) -> None:
    status, plain, body = await ask(broker, f"/page/{name}", Accept_Encoding="identity")
    assert (status, body) == (200, (files("barnabas_broker") / "http" / "page" / name).read_bytes())
    _, small, packed = await ask(broker, f"/page/{name}", Accept_Encoding="gzip")
    assert small["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == body
    assert plain["Content-Type"] == small["Content-Type"]
    again = await ask(broker, f"/page/{name}", If_None_Match=plain["ETag"])
    assert (again[0], again[2]) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fendpoint.py", "%2e%2e/endpoint.py", "page.js/x", "__init__.py"])
async def test_there_are_no_other_files(broker: BrokerServer, name: str) -> None:
    assert (await ask(broker, f"/page/{name}"))[0] == 404


def test_the_page_is_small_and_loads_nothing_from_elsewhere() -> None:
    found = assets.load()
    assert sum(len(each.plain) for each in found.values()) < _MOST_BYTES
    for name, each in found.items():
        text = each.plain.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text, name
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in text, f"{name} turns text into markup or code: {unsafe}"


async def test_the_list_of_groups_is_sent_when_it_has_changed(broker: BrokerServer, wire: Wire) -> None:
    _, headers, _ = await ask(broker, "/groups")
    assert (await ask(broker, "/groups", If_None_Match=headers["ETag"]))[0] == 304
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    status, _, body = await ask(broker, "/groups", If_None_Match=headers["ETag"])
    assert status == 200
    assert [each["group"] for each in json.loads(body)["groups"]] == ["g"]


async def test_a_program_that_does_not_ask_for_an_older_list_gets_the_newest(broker: BrokerServer, wire: Wire) -> None:
    await make_topic(wire, "t")
    await ask(broker, "/groups", Cache_Control="max-age=1")
    await join_alone(wire, "g", "t", 0)
    _, _, body = await ask(broker, "/groups")
    assert [each["group"] for each in json.loads(body)["groups"]] == ["g"]
    _, _, body = await ask(broker, "/groups", Cache_Control="max-age=0")
    assert [each["group"] for each in json.loads(body)["groups"]] == ["g"]


async def test_a_chart(broker: BrokerServer, wire: Wire) -> None:
    await make_topic(wire, "t")
    member_id = await join_alone(wire, "g", "t", 0)
    status, headers, body = await ask(broker, "/groups/g/chart")
    assert status == 200
    made = json.loads(body)
    assert made["group"] == "g"
    assert [lane["member_id"] for lane in made["lanes"]] == [member_id]
    assert [band["cause_text"] for band in made["bands"]] == ["joined"]
    assert made["lanes"][0]["spans"][0]["partitions"] == {"t": [0]}
    since = made["since"]
    path = f"/groups/g/chart?since={since}"
    assert (await ask(broker, path, If_None_Match=headers["ETag"]))[0] == 304
    assert json.loads((await ask(broker, "/groups/g/chart?since=0"))[2])["bands"] == made["bands"]


async def test_the_requests_of_a_group(broker: BrokerServer, wire: Wire) -> None:
    await make_topic(wire, "t")
    member_id = await join_alone(wire, "g", "t", 0)
    status, headers, body = await ask(broker, "/groups/g/requests")
    found = json.loads(body)
    assert (status, found["group"]) == (200, "g")
    assert [(each["api"], each["answer"], each["given"]) for each in found["requests"]] == [
        ("JoinGroup", "NONE", 1),
        ("SyncGroup", "NONE", None),
    ]
    assert {each["member_id"] for each in found["requests"]} == {member_id}
    band = json.loads((await ask(broker, "/groups/g/chart"))[2])["bands"][0]
    assert all(band["around"][0] <= each["time"] <= band["around"][1] for each in found["requests"])
    assert found["kept_since"] - band["start"] <= 1_000
    assert (await ask(broker, "/groups/g/requests", If_None_Match=headers["ETag"]))[0] == 304
    refused = HeartbeatRequest(group_id="g", generation_id=7, member_id=member_id)
    assert (await wire.ask(refused, 0, HeartbeatResponse)).error_code == ErrorCode.ILLEGAL_GENERATION
    status, _, body = await ask(broker, "/groups/g/requests", If_None_Match=headers["ETag"])
    assert (status, json.loads(body)["requests"][-1]["answer"]) == (200, "ILLEGAL_GENERATION")
    assert (await ask(broker, "/groups/none/requests"))[0] == 404


async def test_a_chart_begins_where_it_is_asked_to(broker: BrokerServer, wire: Wire) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    later = json.loads((await ask(broker, "/groups/g/chart?since=9000000000000"))[2])
    assert later["bands"] == later["lanes"] == []
    status, _, body = await ask(broker, "/groups/g/chart?since=noon")
    assert (status, json.loads(body)) == (400, {"error": "since: must be a time in ms since 1970"})
    assert (await ask(broker, "/groups/none/chart"))[0] == 404


async def test_charts_of_any_number_of_times_are_not_kept(broker: BrokerServer, wire: Wire) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    for n in range(_CHARTS + 5):
        assert (await ask(broker, f"/groups/g/chart?since={n * 60_000}"))[0] == 200
    etags = {(await ask(broker, f"/groups/g/chart?since={n * 60_000}"))[1]["ETag"] for n in range(_CHARTS + 5)}
    assert len(etags) == _CHARTS + 5


async def test_a_chart_has_what_happened_before_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        member_id = await join_alone(wire, "g", "t", 0)
    await broker.stop()
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await join_alone(wire, "other", "t", 0)
    made = json.loads((await ask(broker, "/groups/g/chart"))[2])
    assert [lane["member_id"] for lane in made["lanes"]] == [member_id]
    assert len(made["bands"]) == 1


async def test_an_event_is_in_a_chart_once_whether_it_is_written_or_not(
    broker: BrokerServer, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(wire, "t")
    journals: list[Journal] = []
    with monkeypatch.context() as patched:
        # Events wait, and are in memory only.
        patched.setattr(Journal, "_step", lambda self: journals.append(self))
        await join_alone(wire, "g", "t", 0)
        made = json.loads((await ask(broker, "/groups/g/chart?since=0"))[2])
        assert [band["generation"] for band in made["bands"]] == [1]
    journals[0].flush()
    # An earlier chart is kept for its time: ask for another one.
    again = json.loads((await ask(broker, "/groups/g/chart?since=60000"))[2])
    assert (again["bands"], again["lanes"], again["pauses"]) == (made["bands"], made["lanes"], made["pauses"])


async def test_events_that_are_not_read_are_a_gap(
    broker: BrokerServer, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    monkeypatch.setattr(history, "MOST_BYTES", 1)
    made = json.loads((await ask(broker, "/groups/g/chart"))[2])
    assert made["gaps"][0]["text"] == "Gap: older events were not read: there are too many."
    assert made["bands"], "what is in memory is shown"
