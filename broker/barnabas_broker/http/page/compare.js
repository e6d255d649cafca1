// What is different between two generations of a group. Pure.

/** The owner of each partition at a time: the index of its lane, by "topic\npartition". */
export function ownersAt(chart, time) {
  const owners = new Map();
  chart.lanes.forEach((lane, at) => {
    for (const span of lane.spans) {
      if (span.start > time || (span.end !== null && span.end <= time)) continue;
      for (const [topic, numbers] of Object.entries(span.partitions)) for (const number of numbers) owners.set(`${topic}\n${number}`, at);
    }
  });
  return owners;
}

/** Compare the generations of two bands, given by their indexes in any order.
 *  Returns the earlier and the later band; the lanes that are only in one; each partition that has another owner (indexes
 *  of lanes, null for none); how many rebalances of each kind led from one to the other; and for how many ms partitions
 *  had no owner in these, at most. */
export function compare(chart, one, other) {
  const [first, last] = [Math.min(one, other), Math.max(one, other)];
  const [earlier, later] = [chart.bands[first], chart.bands[last]];
  const [start, end] = [earlier, later].map((band) => band.assigned ?? band.start);
  const there = (lane, time) => (lane.start ?? -Infinity) <= time && (lane.end ?? Infinity) > time;
  const at = (wanted) => chart.lanes.map((lane, n) => n).filter((n) => wanted(chart.lanes[n]));
  const [before, after] = [ownersAt(chart, start), ownersAt(chart, end)];
  const moved = [];
  for (const key of [...new Set([...before.keys(), ...after.keys()])]) {
    const [from, to] = [before.get(key) ?? null, after.get(key) ?? null];
    if (from === to) continue;
    const [topic, number] = key.split("\n");
    moved.push({ topic, partition: Number(number), from, to });
  }
  moved.sort((a, b) => (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition));
  const kinds = {};
  for (const band of chart.bands.slice(first + 1, last + 1)) kinds[band.kind] = (kinds[band.kind] ?? 0) + 1;
  const paused = chart.pauses.filter((pause) => pause.band !== null && pause.band > first && pause.band <= last);
  return {
    earlier, later, moved, kinds,
    gone: at((lane) => there(lane, start) && !there(lane, end)),
    arrived: at((lane) => !there(lane, start) && there(lane, end)),
    paused: paused.reduce((sum, pause) => sum + (pause.at_most_ms ?? 0), 0),
  };
}
