// Unit tests of the pure parts: formatting, ticks, steps, colours, the timeline's index and raster.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const parts = await load(
  "parts",
  "data", "format", "job_colours", "span", "steps", "summary_columns", "ticks", "timeline_index", "timeline_raster", "viewport", "nodes",
);

test("durations use the units that matter", () => {
  const cases = [
    [null, "–"], [0, "0 s"], [0.04, "0.04 s"], [4.2, "4.2 s"], [42.4, "42 s"], [59.7, "1 m"], [312, "5 m 12 s"],
    [3599.6, "1 h"], [8012, "2 h 14 m"], [7980, "2 h 13 m"], [86399, "1 d"], [273600, "3 d 4 h"], [-90, "−1 m 30 s"],
  ];
  for (const [seconds, text] of cases) assert.equal(parts.formatDuration(seconds), text);
  assert.equal(parts.formatMoment(122400 + 61), "1 d 10 h 1 m");
  assert.equal(parts.formatTick(122400 + 90), "1 d 10 h 1 m 30 s");
});

test("numbers keep enough digits to compare", () => {
  assert.equal(parts.formatNumber(0.0123), "0.0123");
  assert.equal(parts.formatNumber(3.14159), "3.14");
  assert.equal(parts.formatNumber(31415.9), "31,416");
  assert.equal(parts.formatPercent(0.9731), "97.3%");
  assert.equal(parts.plural(1, "job"), "1 job");
});

test("ticks of a number axis are 1, 2 or 5 times a power of ten apart", () => {
  assert.deepEqual(parts.numberTicks(0.9, 10.2, 5), [2, 4, 6, 8, 10]);
  assert.deepEqual(parts.numberTicks(3, 3, 5), [3]);
  const fine = parts.numberTicks(0.812, 0.83, 5);
  assert.ok(fine.length >= 3 && fine.every((tick) => tick >= 0.812 && tick <= 0.83 && Math.abs(tick * 200 - Math.round(tick * 200)) < 1e-6), String(fine));
});

test("axis ticks are round, inside the range and few", () => {
  const ticks = parts.durationTicks(100, 7300, 8);
  assert.deepEqual(ticks, [900, 1800, 2700, 3600, 4500, 5400, 6300, 7200]);
  assert.ok(parts.durationTicks(0, 1e9, 8).length <= 9);
  assert.deepEqual(parts.logDurationTicks(20, 4000, 4), [60, 600, 3600]);
  assert.deepEqual(parts.logDurationTicks(1800, 14400, 8), [1800, 3600, 7200, 10800]);
});

test("resampling preserves averages", () => {
  const series = new parts.StepSeries([0, 10, 20, 40], [1, 3, 5, 5]);
  assert.equal(series.at(15), 3);
  assert.equal(series.at(40), null);
  assert.equal(series.average({ lo: 0, hi: 40 }), (10 + 30 + 100) / 40);
  assert.equal(series.average({ lo: 50, hi: 60 }), null);
  assert.deepEqual(parts.resample(series, parts.evenGrid({ lo: 0, hi: 40 }, 2)), [2, 5, 5]);
  assert.equal(new parts.StepSeries([], []).average({ lo: 0, hi: 1 }), null);
});

test("spans stay within their limits", () => {
  const limits = { lo: 0, hi: 100 };
  assert.deepEqual(parts.fitSpan({ lo: -30, hi: 20 }, limits, 1), { lo: 0, hi: 50 });
  assert.deepEqual(parts.fitSpan({ lo: -500, hi: 900 }, limits, 1), limits);
  assert.deepEqual(parts.fitSpan({ lo: 50, hi: 50 }, limits, 10), { lo: 45, hi: 55 });
});

function segments(rows) {
  const column = (i) => rows.map((row) => row[i]);
  return { job: column(0), lane: column(1), width: column(2), start: column(3), end: column(4), total: rows.length, shown: rows.length };
}

function manySegments(count, lanes) {
  const rows = [];
  const perLane = Math.ceil(count / lanes);
  for (let i = 0; i < count; i++) {
    const start = Math.floor(i / lanes) / perLane;
    rows.push([i % 997, i % lanes, 1, start, start + 1 / perLane]);
  }
  return segments(rows);
}

test("the timeline index finds what a plain scan finds", () => {
  const all = manySegments(5000, 16);
  const index = new parts.TimelineIndex(all);
  const window = { lo: 0.31, hi: 0.37 };
  const found = [];
  index.forEachDuring(window, (i) => found.push(i));
  const expected = all.start.filter((start, i) => start <= window.hi && all.end[i] > window.lo);
  assert.equal(found.length, expected.length);
  assert.ok(found.length < 1000);
});

test("the timeline index finds rectangles by place and by job", () => {
  const index = new parts.TimelineIndex(segments([[7, 4, 2, 50, 60], [3, 0, 4, 0, 10], [7, 0, 2, 20, 30], [5, 6, 1, 5, 5]]));
  const at = (moment, lane) => index.find({ lo: moment, hi: moment + 0.1 }, { lo: lane, hi: lane + 1 });
  assert.equal(index.job[at(55, 5)], 7);
  assert.equal(index.job[at(3, 0)], 3);
  assert.equal(at(15, 0), -1);
  assert.equal(at(5, 6), -1, "a segment without length covers nothing");
  assert.equal(index.gpusHeld(7, 25), 2);
  assert.equal(index.gpusHeld(7, 35), 0);
  assert.deepEqual(index.lanesOf(7), { lo: 0, hi: 6 });
  assert.equal(index.lanesOf(99), null);
});

test("slivers blend to the share of the pixel they cover", () => {
  const black = parts.toPixel("#000000");
  const white = parts.toPixel("#ffffff");
  const raster = new parts.TimelineRaster(1, 1);
  const index = new parts.TimelineIndex(segments([[0, 0, 1, 0, 0.25], [0, 1, 1, 0.5, 0.75]]));
  raster.paint(index, { pixels: Uint32Array.of(black), idle: white, blur: null }, { lo: 0, hi: 1 }, { lo: 0, hi: 2 });
  const grey = raster.pixels[0] & 255;
  assert.ok(Math.abs(grey - 255 * 0.75) <= 1, `a quarter is covered, got ${grey}`);
});

test("large rectangles keep their exact colour", () => {
  const colour = parts.toPixel("#123456");
  const idle = parts.toPixel("#ffffff");
  const raster = new parts.TimelineRaster(40, 40);
  const index = new parts.TimelineIndex(segments([[0, 0, 1, 0, 1]]));
  raster.paint(index, { pixels: Uint32Array.of(colour), idle, blur: idle }, { lo: 0, hi: 2 }, { lo: 0, hi: 2 });
  assert.equal(raster.pixels[5 * 40 + 5], colour);
  assert.equal(raster.pixels[30 * 40 + 30], idle);
});

test("a busy cluster of slivers looks busy, whatever the zoom", () => {
  const idle = parts.toPixel("#ffffff");
  const busy = parts.toPixel("#808080");
  const raster = new parts.TimelineRaster(200, 100);
  const index = new parts.TimelineIndex(manySegments(196 * 512, 512));
  const pixels = Uint32Array.from({ length: 997 }, (_, job) => parts.jobPixel(job));
  raster.paint(index, { pixels, idle, blur: busy }, { lo: 0, hi: 1 }, { lo: 0, hi: 512 });
  const shades = raster.pixels.map((pixel) => pixel & 255);
  assert.ok(shades.every((shade) => shade > 0x60 && shade < 0xa0));
});

test("job colours are stable and neighbours differ", () => {
  for (let job = 0; job < 100; job++) {
    assert.equal(parts.jobPixel(job), parts.jobPixel(job));
    assert.notEqual(parts.jobPixel(job), parts.jobPixel(job + 1));
  }
});

test("nodes are found across groups", () => {
  const nodes = new parts.NodeMap([{ nodes: 2, gpusPerNode: 4, type: "v100" }, { nodes: 1, gpusPerNode: 8, type: "a100" }]);
  assert.equal(nodes.describe(5), "GPU 5, node 1, v100");
  assert.equal(nodes.describe(8), "GPU 8, node 2, a100");
  assert.equal(nodes.describeGroups(), "nodes 0–1: v100, node 2: a100");
  assert.ok(nodes.startsGroup(2) && !nodes.startsGroup(1));
});

test("best values and sorting follow the column's sense", () => {
  const summaries = [{ avg_jct_s: 30, gpu_busy: 0.5 }, { avg_jct_s: null, gpu_busy: 0.9 }, { avg_jct_s: 10, gpu_busy: 0.9 }];
  const column = (key) => parts.summaryColumns.find((found) => found.key === key);
  assert.equal(parts.bestValue(column("avg_jct_s"), summaries), 10);
  assert.equal(parts.bestValue(column("gpu_busy"), summaries), 0.9);
  assert.equal(parts.bestValue(column("gpu_busy"), summaries.slice(1)), null, "nothing to win in a tie of all");
  assert.deepEqual(parts.sortRuns(column("avg_jct_s"), "best first", summaries), [2, 0, 1]);
  assert.deepEqual(parts.sortRuns(column("gpu_busy"), "best first", summaries), [1, 2, 0]);
});

test("unreadable data gives a sentence, odd data a report", () => {
  assert.match(parts.readReport("{oops").problem, /cannot be read/);
  assert.match(parts.readReport('{"version": 99}').problem, /version/);
  const { report } = parts.readReport('{"version": 1, "runs": [{"timeline": {"job": [5]}}], "jobs": null}');
  assert.equal(report.jobs.count, 0);
  assert.equal(report.runs[0].timeline.job.length, 0);
});

test("a rectangle that grows, and one that lies ahead, are found where they are now", () => {
  const index = new parts.TimelineIndex({ job: [0, 1], lane: [0, 1], width: [1, 1], start: [0, 10], end: [10, 30], total: 2, shown: 2 });
  const during = (lo, hi) => {
    const rows = [];
    index.forEachDuring({ lo, hi }, (i) => rows.push(i));
    return rows;
  };
  index.extend(0, 12);
  index.postpone(1, 12);
  assert.deepEqual(during(11, 11.5), [0]);
  assert.deepEqual(during(20, 25), [1]);
  index.extend(0, 40);
  index.postpone(1, 40);
  assert.deepEqual(during(35, 39), [0]);
});

test("a view of everything moves on with the time, a zoomed one stays", () => {
  const viewport = new parts.Viewport({ lo: 0, hi: 100 }, { lo: 0, hi: 8 });
  viewport.moveOn({ lo: 10, hi: 110 });
  assert.deepEqual(viewport.time, { lo: 10, hi: 110 });
  viewport.show({ lo: 20, hi: 50 });
  viewport.moveOn({ lo: 11, hi: 111 });
  assert.deepEqual(viewport.time, { lo: 20, hi: 50 });
  viewport.reset();
  assert.deepEqual(viewport.time, { lo: 11, hi: 111 });
});
