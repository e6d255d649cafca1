"""Large groups and lists, whose answers do not come from a broker."""

import json
from typing import Any

from tests.browser.conftest import Page


def group_rows(count: int) -> list[dict[str, Any]]:
    """Rows of the list of groups."""
    return [
        {"group": f"group-{n:04}", "state": "Stable", "generation": 1, "type": "classic", "protocol_type": "consumer",
         "protocol": "range", "members": n, "lag": n * 7 % 1000, "unstable_lag": 0, "lag_ms": n * 13 % 9000,
         "lag_ms_exact": True, "commit_rate": None if n % 5 == 0 else n * 3.5, "produce_rate": n * 4.5,
         "health": "ok", "health_reason": "", "storm_score": n % 50}
        for n in range(count)
    ]  # fmt: skip


def large_chart(members: int, bands: int) -> dict[str, Any]:
    """A chart of a group with many members and rebalances in the last hour."""
    now = 1_700_000_000_000
    step = 3_600_000 // bands
    lanes = [
        {"member_id": f"m-{n}", "name": f"consumer-{n} (10.0.{n // 250}.{n % 250})", "client_id": f"consumer-{n}",
         "host": "/10.0.0.1", "instance_id": None, "start": now - 3_600_000, "end": None, "end_type": None,
         "spans": [{"start": now - 3_600_000 + k * step, "end": now - 3_600_000 + (k + 1) * step - 500,
                    "partitions": {"orders": [n]}} for k in range(bands)],
         "silent": [], "revoking": []}
        for n in range(members)
    ]  # fmt: skip
    made = [
        {"generation": k + 1, "start": now - 3_600_000 + k * step, "assigned": now - 3_600_000 + k * step + 500,
         "end": now - 3_600_000 + (k + 1) * step if k + 1 < bands else None,
         "around": [now - 3_600_000 + k * step, now - 3_600_000 + k * step + 2_500],
         "cause": "member_joined", "kind": "joined",
         "cause_text": "joined", "reason": "", "members": [{"name": "consumer-1", "member_id": "m-1"}], "moves": [],
         "explanation": None, "inferred": False, "type": "rebalance_started"}
        for k in range(bands)
    ]  # fmt: skip
    pauses = [
        {"topic": "orders", "partition": n, "start": now - 3_600_000, "end": now - 3_599_000, "at_least_ms": 500,
         "at_most_ms": 1_000, "band": 0}
        for n in range(members)
    ]  # fmt: skip
    return {"group": "big", "since": now - 3_600_000, "lanes": lanes, "bands": made, "pauses": pauses, "gaps": [],
            "explanations": [], "more": False}  # fmt: skip


def large_requests(count: int) -> list[dict[str, Any]]:
    """Requests around the last rebalance of the chart, as many as a broker keeps."""
    start = 1_700_000_000_000 - 60_000
    return [
        {"time": start + n, "until": start + n, "api": "JoinGroup", "member_id": f"m-{n}", "client_id": f"consumer-{n}",
         "host": "/10.0.0.1", "instance_id": None, "members": 1, "generation": None,
         "reason": "", "answer": "NONE", "given": 60, "waited_ms": 500, "more": 0}
        for n in range(count)
    ]  # fmt: skip


async def show_large(page: Page) -> None:
    """Open a group of 500 members, whose answers do not come from a broker."""
    chart = json.dumps(large_chart(500, 60))
    group = {"group": "big", "state": "Stable", "generation": 60, "type": "classic", "protocol": "range",
             "members": [], "offsets": [], "health": "ok", "health_reason": "", "lag_ms": 0}  # fmt: skip
    times = [1_700_000_000_000 - 2_000 * n for n in range(600)][::-1]
    columns = {name: [n % 97 for n in range(600)] for name in ("lag", "lag_ms", "commit_rate", "produce_rate")}
    curves = json.dumps({"group": "big", "times": times, **columns, "kept": True})
    requests = json.dumps({"group": "big", "kept_since": 0, "requests": large_requests(200)})
    bodies = {"/chart": chart, "/curves": curves, "/requests": requests}

    async def answer(route: Any) -> None:
        url = route.request.url
        body = next((each for part, each in bodies.items() if part in url), json.dumps(group))
        if route.request.headers.get("if-none-match"):
            await route.fulfill(status=304)
        else:
            await route.fulfill(status=200, content_type="application/json", body=body, headers={"ETag": '"1"'})

    await page.tab.route("**/groups/big**", answer)
    await page.open("/#/groups/big?from=1699996400000&to=1700000000000")
    await page.tab.wait_for_selector(".band >> nth=59")
    await page.tab.wait_for_selector(".curve.lag", state="attached")
    await page.tab.wait_for_selector(".facts .chip")
