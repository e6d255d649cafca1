// Repeated requests with ETag. A response that has not changed is 304: some bytes, and no work in the page.
// Polling instead of server-sent events: it survives restarts of the broker without a state on either side, holds no
// connection open, and costs the broker nothing while no page is visible.

const PATIENCE = 10000;

/** Whether time goes on, and the time of day in ms. A report has another module in place of this one: see fixed.js. */
export const LIVE = true;
export const present = () => Date.now();

/** Ask for JSON again and again, until `stop()` is called.
 *  `path` is a function; `changed(data, skew)` gets new data, and the ms by which the broker's clock is ahead;
 *  `failed(error, status)` gets every failure, null as soon as the broker answers again. */
export function poll(path, interval, changed, failed) {
  let etag = null;
  let last = null;
  let timer = null;
  let stopped = false;
  let failures = 0;

  async function once() {
    timer = null;
    const from = path();
    if (from !== last) etag = null;
    last = from;
    try {
      const headers = { "Cache-Control": "max-age=1", ...(etag === null ? {} : { "If-None-Match": etag }) };
      const signal = AbortSignal.timeout(PATIENCE);
      const response = await fetch(from, { headers, cache: "no-store", signal });
      if (stopped) return;
      if (response.status !== 304) {
        const data = await response.json();
        if (stopped) return;
        if (!response.ok) throw Object.assign(new Error(data.error ?? response.statusText), { status: response.status });
        const date = Date.parse(response.headers.get("Date") ?? "");
        changed(data, Number.isNaN(date) ? 0 : date + 500 - Date.now());
        etag = response.headers.get("ETag");
      }
      failures = 0;
      failed(null);
    } catch (error) {
      if (stopped) return;
      failures += 1;
      failed(error, error.status);
    }
    later();
  }

  function later() {
    if (!stopped && timer === null && !document.hidden) {
      timer = setTimeout(once, Math.min(interval * 2 ** Math.min(failures, 4), 10000));
    }
  }

  function shown() {
    if (!document.hidden && timer === null && !stopped) once();
  }

  document.addEventListener("visibilitychange", shown);
  once();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    },
  };
}
