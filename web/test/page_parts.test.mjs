// Unit tests of the pure parts of the daemon's page: streams, logs, colours of terminals, command lines, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const page = await load("page", "stream", "ansi", "lines", "job_text", "csv", "timeline_rows");

test("events are read however the stream is cut", () => {
  const text = ': changes\n\nid: e-1\nevent: job\ndata: {"id":1}\n\nid: e-2\n\nevent: resync\ndata: {}\n\nevent: job\ndata: {broken\n\n';
  for (let size = 1; size < text.length; size += 3) {
    const parser = new page.EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(events, [{ type: "job", data: { id: 1 } }, { type: "resync", data: {} }]);
    assert.equal(parser.lastId, "e-2");
  }
});

test("lines know where they begin, however the bytes are cut", () => {
  const bytes = new TextEncoder().encode("half\nfirst\n\nzweite ü\nrest");
  for (let size = 1; size <= bytes.length; size++) {
    const splitter = new page.LineSplitter(100, true);
    const lines = [];
    for (let at = 0; at < bytes.length; at += size) lines.push(...splitter.push(bytes.subarray(at, at + size)));
    lines.push(...splitter.end());
    assert.deepEqual(lines, [{ at: 105, text: "first" }, { at: 111, text: "" }, { at: 112, text: "zweite ü" }, { at: 122, text: "rest" }]);
  }
});

test("a line of a megabyte is cut on the screen and counted in full", () => {
  const splitter = new page.LineSplitter(0, false);
  const lines = splitter.push(new TextEncoder().encode(`${"x".repeat(1 << 20)}\nnext\n`));
  assert.equal(lines.length, 2);
  assert.ok(lines[0].text.length < 5000);
  assert.equal(lines[1].at, (1 << 20) + 1);
});

test("pieces of a log without a match are left out, and the places of all other lines stay right", () => {
  const text = "one\ntwo\n\x1b[1mth\x1b[0mree\nfour\nÄ five\nsix\nseven\n";
  const bytes = new TextEncoder().encode(text);
  const places = (words, size) => {
    const splitter = new page.LineSplitter(0, false, (all) => page.mayShow(all, words));
    const lines = [];
    for (let at = 0; at < bytes.length; at += size) lines.push(...splitter.push(bytes.subarray(at, at + size)));
    return [...lines, ...splitter.end()].filter(({ text }) => page.visibleText(text).toLowerCase().includes(words)).map(({ at }) => at);
  };
  const rest = new TextEncoder().encode(text.slice(0, text.indexOf("seven"))).length;
  for (let size = 1; size <= bytes.length; size++) {
    assert.deepEqual(places("three", size), [8]);
    assert.deepEqual(places("ä five", size), [text.indexOf("Ä")]);
    assert.deepEqual(places("seven", size), [rest]);
    assert.deepEqual(places("eight", size), []);
  }
  const splitter = new page.LineSplitter(0, false, (all) => page.mayShow(all, "six"));
  assert.deepEqual(splitter.push(new TextEncoder().encode("zero\none\ntwo\n")), [{ at: 0, text: "zero" }], "the first line may have begun before");
  assert.deepEqual(splitter.push(new TextEncoder().encode("three\nsix\n")), [{ at: 13, text: "three" }, { at: 19, text: "six" }]);
});

test("colours of terminals are kept, all other sequences are dropped", () => {
  const text = (line) => page.piecesOf(line).map(({ text }) => text).join("");
  assert.deepEqual(page.piecesOf("a \x1b[1;31mred\x1b[0m b"), [
    { text: "a ", style: "" }, { text: "red", style: "fg-red ansi-bold" }, { text: " b", style: "" },
  ]);
  assert.deepEqual(page.piecesOf("\x1b[38;5;2mgreen\x1b[38;2;1;2;3mtrue"), [{ text: "green", style: "fg-green" }, { text: "true", style: "" }]);
  assert.equal(text("\x1b]0;title\x07\x1b[2J\x1b[10;10Hhere\x1bc\x00\x7f"), "here");
  assert.equal(text("10%\r20%\r"), "20%");
  assert.equal(text("<b>&amp;"), "<b>&amp;");
  assert.equal(page.visibleText("\x1b[31mneed\x1b[0mle"), "needle");
});

test("commands are split as a shell does, and written so that a shell reads them back", () => {
  assert.deepEqual(page.splitWords(` a 'b c' "d \\"e\\" $f" g\\ h '' `), ["a", "b c", 'd "e" $f', "g h", ""]);
  assert.equal(page.splitWords("a 'b"), null);
  const fields = { ...page.emptyFields, command: "python3 'my file.py' --x=1", name: "it's", max: "4", deadline: "+2h", work: "100", directory: "/data" };
  assert.deepEqual(page.jobOf(fields), {
    command: ["python3", "my file.py", "--x=1"], name: "it's", directory: "/data", goal: { deadline: "+2h" }, work: { steps: 100 }, gpus: { min: 1, max: 4 },
  });
  assert.equal(
    page.commandLine(fields),
    `rubato submit --name 'it'\\''s' --directory /data --work steps=100 --gpus 1:4 --deadline +2h -- python3 'my file.py' --x=1`,
  );
});

test("CSV is quoted, and no cell is a formula", () => {
  const columns = [
    { name: "a", title: "A", cell: () => null, value: (row) => row[0] },
    { name: "b", title: "B, b", cell: () => null, value: (row) => row[1] },
    { name: "c", title: "not a value", cell: () => null },
  ];
  const rows = [["x", 1], ['say "hi"', -2], ["=1+1", null], ["-a", 3], ["two\nlines", 4]];
  assert.equal(page.toCsv(rows, columns), `A,"B, b"\r\nx,1\r\n"say ""hi""",-2\r\n'=1+1,\r\n'-a,3\r\n"two\nlines",4\r\n`);
});

const nodes = [0, 1].map((id) => ({ id, state: "up", gpus: 4, type: "gpu", used: [], since: 0, reason: "" }));

test("spans become rectangles of neighbouring GPUs, and jobs of others are one job", () => {
  const map = page.nodeMap(nodes);
  const spans = [
    { job: 7, node: 0, gpus: [0, 1, 3], from: 10, until: 20 },
    { job: null, node: 1, gpus: [2], from: 10, until: null },
    { job: null, node: 1, gpus: [0], from: 12, until: 13 },
    { job: 8, node: 9, gpus: [0], from: 12, until: 13 },
  ];
  const { ids, rows } = page.rectanglesOf(spans, map, 30);
  assert.deepEqual(ids, [7, null]);
  assert.deepEqual(rows.job, [0, 0, 1, 1]);
  assert.deepEqual(rows.lane, [0, 3, 6, 4]);
  assert.deepEqual(rows.width, [2, 1, 1, 1]);
  assert.deepEqual(rows.end, [20, 20, 30, 13]);
});

test("a job that joins another one on a GPU is drawn over the lower half of it", () => {
  const map = page.nodeMap(nodes);
  const spans = [
    { job: 1, node: 0, gpus: [0, 1, 2], from: 10, until: 20 },
    { job: 2, node: 0, gpus: [1, 3], from: 12, until: null },
    { job: 3, node: 0, gpus: [0], from: 20, until: null },
  ];
  const { rows } = page.rectanglesOf(spans, map, 30);
  assert.deepEqual(rows.job, [0, 1, 1, 2]);
  assert.deepEqual(rows.lane, [0, 3, 1.5, 0]);
  assert.deepEqual(rows.width, [3, 1, 0.5, 1]);
  assert.equal(page.heldOn({ used: [{ gpu: 1 }, { gpu: 1 }, { gpu: 3 }] }), 2);
});

test("a plan is drawn where its job is, else where nobody is, and two plans do not cover each other", () => {
  const map = page.nodeMap(nodes);
  const held = [
    { job: 1, node: 0, gpus: [2, 3], from: 0, until: null },
    { job: 2, node: 0, gpus: [0], from: 0, until: null },
  ];
  const plans = [
    { job: 1, gpus: 3, from: 10, until: 20 },
    { job: 3, gpus: 4, from: 12, until: 18 },
    { job: 1, gpus: 1, from: 20, until: 30 },
  ];
  const laid = page.layPlans(plans, held, map, 8).map(({ plan, run }) => [plan.job, plan.from, ...run]);
  assert.deepEqual(laid, [[1, 10, 1, 3], [3, 12, 4, 4], [1, 20, 2, 1]]);
});

test("the GPUs of a job are a step function of its spans", () => {
  const spans = [
    { job: 1, node: 0, gpus: [0, 1], from: 10, until: 20 },
    { job: 1, node: 1, gpus: [0], from: 15, until: null },
  ];
  assert.deepEqual(page.stepsOf(spans, 30), { time: [10, 15, 20, 30], gpus: [2, 3, 1, 1] });
  assert.deepEqual(page.stepsOf([], 30), { time: [], gpus: [] });
});
