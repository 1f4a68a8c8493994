#include "rubato/client/render.h"

#include <gtest/gtest.h>
#include <string>

#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"

namespace rubato::client {
namespace {

render::Look plain() {
  render::Look look;
  look.now = *parse_wall_time("2026-11-16T12:00:00Z");
  return look;
}

Json running_job() {
  return Json::parse(R"({"id":7,"name":"resnet","user":"ada","state":"RUNNING","reason":"","gpus":4,
    "slots":["0.0","0.1","0.3","1.2"],"limits":{"min":1,"max":8,"allowed":[]},
    "submitted":"2026-11-16T11:00:00Z","started":"2026-11-16T11:10:00Z","ended":null,
    "deadline":"2026-11-16T14:00:00Z","slack_seconds":4980,"promised":"2026-11-16T14:00:00Z",
    "honoured":true,"plan":[{"from":"2026-11-16T12:05:00Z","gpus":2},{"from":"2026-11-17T00:00:00Z","gpus":4}],
    "progress":{"done":0.42,"step":4200,"samples":268800,"epoch":1.26,"loss":0.731,"rate":512.5},
    "eta":"2026-11-16T12:37:00Z","gpu_seconds":11000,"failures":0,"resizes":3,"restarts":0,"batch":64,
    "profile":"resnet-cifar","exit_code":null,"command":["python","train.py","--note","a b"],"position":null})");
}

Json waiting_job() {
  return Json::parse(R"({"id":12,"name":"bert","user":"grace","state":"PENDING",
    "reason":"needs 2 GPUs","gpus":0,"slots":[],"limits":{"min":2,"max":4,"allowed":[2,4]},
    "submitted":"2026-11-16T11:59:00Z","started":null,"ended":null,"deadline":null,
    "slack_seconds":-95,"progress":{"done":null},"eta":null,"position":2})");
}

TEST(Show, ListsJobsAsSqueueDoes) {
  const Json list = {{"jobs", {running_job(), waiting_job()}}, {"next", nullptr}};
  EXPECT_EQ(render::jobs(list, plain()),
            "JOBID  NAME    USER   ST   TIME  GPUS  LIMITS  DONE  ETA   SLACK  NODELIST(REASON)\n"
            "    7  resnet  ada    R   50:00     4  1-8      42%  37m  +1h23m  0[0-1,3],1[2]\n"
            "   12  bert    grace  PD   0:00     0  2,4                -1m35s  (needs 2 GPUs)\n");
}

TEST(Show, CutsLinesAtTheWidthOfTheTerminal) {
  auto look = plain();
  look.columns = 40;
  const Json list = {{"jobs", {running_job(), waiting_job()}}};
  const std::string text = render::jobs(list, look);
  for (const auto line : split(text, '\n')) EXPECT_LE(text_columns(line), 40) << line;
}

TEST(Show, OneJobInFull) {
  const Json history = Json::parse(R"({"events":[
    {"number":1,"at":"2026-11-16T11:00:00Z","type":"submitted","job":7,"text":"by ada"},
    {"number":9,"at":"2026-11-16T11:10:00Z","type":"started","job":7,"text":"on 2 GPUs"}],"next":null})");
  EXPECT_EQ(
      render::job(running_job(), history, plain()),
      "       job  7  resnet\n"
      "      user  ada\n"
      "     state  RUNNING\n"
      "      GPUs  4 of 1-8 on 0[0-1,3],1[2]\n"
      "     batch  64\n"
      "  progress  [########------------] 42%, step 4200, epoch 1.26, samples 268800, loss 0.731, "
      "512.5 samples/s\n"
      " submitted  11:00:00\n"
      "   started  11:10:00\n"
      "      time  50:00\n"
      "       ETA  12:37:00\n"
      "  deadline  14:00:00, slack +1h23m\n"
      "  promised  14:00:00\n"
      "      plan  2 from 12:05:00, 4 from 2026-11-17 00:00:00\n"
      "    so far  3 resizes, 0 restarts, 0 failures\n"
      "  GPU time  3:03:20\n"
      "   profile  resnet-cifar\n"
      "   command  python train.py --note 'a b'\n"
      "\n"
      "TIME      EVENT      WHAT\n"
      "11:00:00  submitted  by ada\n"
      "11:10:00  started    on 2 GPUs\n");
}

TEST(Show, TimesAreOnTheReadersClock) {
  auto look = plain();
  look.offset = std::chrono::hours(13);
  const Json answer =
      Json::parse(R"({"events":[{"number":3,"at":"2026-11-16T10:30:00.25Z","type":"node",
    "job":null,"text":"node 1 is up"},{"number":4,"at":"2026-11-16T11:30:00Z","type":"x","job":2,"text":""}]})");
  EXPECT_EQ(render::history(answer, look),
            "NUMBER  TIME                 JOB  EVENT  WHAT\n"
            "     3  2026-11-16 23:30:00       node   node 1 is up\n"
            "     4  00:30:00               2  x\n");
}

TEST(Show, VerdictsOfSubmissions) {
  Json answer = running_job();
  answer["plan"] = Json::parse(R"([{"from":"2026-11-16T12:00:00Z","gpus":2}])");
  answer["verdict"] = {{"admitted", true}, {"text", "admitted, will finish by 14:00:00 UTC"}};
  EXPECT_EQ(render::submission(answer, plain()),
            "job 7 (resnet): admitted, will finish by 14:00:00 UTC\n  from 12:00:00: 2 GPUs\n");
  answer["id"] = nullptr;
  answer["plan"] = nullptr;
  answer["verdict"] = {{"admitted", false}, {"text", "refused, earliest feasible 15:00:00 UTC"}};
  EXPECT_EQ(render::submission(answer, plain()),
            "dry run: refused, earliest feasible 15:00:00 UTC\n");
}

TEST(Show, NodesAndWhoUsesThem) {
  const Json answer = Json::parse(R"({"nodes":[
    {"id":0,"state":"up","gpus":4,"type":"gpu","since":"2026-11-16T09:00:00Z",
     "used":[{"gpu":0,"job":7,"worker":0},{"gpu":1,"job":7,"worker":1},{"gpu":2,"job":null}]},
    {"id":1,"state":"unknown","gpus":4,"type":"gpu","used":[],"since":null}]})");
  EXPECT_EQ(render::nodes(answer, plain()),
            "NODE  STATE    TYPE  GPUS  USED  SINCE     JOBS\n"
            "   0  up       gpu      4     3  09:00:00  7x2 otherx1\n"
            "   1  unknown  gpu      4     0\n");
  Json troubled = answer;
  troubled["nodes"][1]["reason"] = "its disk is full";
  EXPECT_EQ(render::nodes(troubled, plain()),
            "NODE  STATE    TYPE  GPUS  USED  SINCE     JOBS         REASON\n"
            "   0  up       gpu      4     3  09:00:00  7x2 otherx1\n"
            "   1  unknown  gpu      4     0                         its disk is full\n");
}

TEST(Show, PolicyWithItsPromises) {
  EXPECT_EQ(render::policy(Json::parse(R"({"policy":"afs-l","promises":[{"job":7,
      "promised":"2026-11-16T14:00:00Z","finish":"2026-11-16T13:00:00Z","honoured":false}],
      "not_honoured":[{"job":7,"name":"resnet","promised":"2026-11-16T14:00:00Z"}]})"),
                           plain()),
            "afs-l\n"
            "  job 7 is promised to finish by 14:00:00, which this policy does not honour\n"
            "This policy does not honour what was promised before:\n"
            "  job 7 was promised to finish by 14:00:00\n");
}

TEST(Show, Health) {
  EXPECT_EQ(render::health(Json::parse(R"({"status":"ok","problems":[]})"), plain()),
            "all is well\n");
  EXPECT_EQ(render::health(Json::parse(R"({"status":"problems","problems":[
      {"what":"node 1 does not answer","remedy":"look at it"},
      {"what":"job 7 (x) has failed 3 times","remedy":"look at rubato logs 7"}]})"),
                           plain()),
            "- node 1 does not answer\n    look at it\n"
            "- job 7 (x) has failed 3 times\n    look at rubato logs 7\n");
}

TEST(Show, Explanations) {
  EXPECT_EQ(render::explanation(Json::parse(R"({"job":12,"sentences":["It waits.","1 GPU is idle."],
      "decision":{"number":40,"at":"2026-11-16T11:59:01Z","policy":"afs-l"},"waits_for":[7,9],
      "holds":[],"would_change":["a job that ends or shrinks"]})"),
                                plain()),
            "It waits.\n1 GPU is idle.\nIt waits for: 7, 9\nWhat would change that:\n"
            "  - a job that ends or shrinks\nFrom decision 40 of afs-l, 11:59:01.\n");
}

TEST(Show, NodesWithNamesAndGpusOfOthers) {
  const Json answer = Json::parse(R"({"nodes":[
    {"id":0,"name":"tux0","state":"up","gpus":4,"type":"h100","used":[{"gpu":0,"job":7}],
     "others":[2,3],"others_reason":"jobs of others","since":"2026-11-16T11:00:00Z","reason":""},
    {"id":1,"name":"tux1","state":"unknown","gpus":4,"type":"h100","used":[],"others":[],
     "others_reason":"","since":"2026-11-16T11:00:00Z","reason":"not responding"}]})");
  EXPECT_EQ(render::nodes(answer, plain()),
            "NODE  NAME  STATE    TYPE  GPUS  USED  OTHERS  SINCE     JOBS  REASON\n"
            "   0  tux0  up       h100     4     1       2  11:00:00  7x1   jobs of others\n"
            "   1  tux1  unknown  h100     4     0       0  11:00:00        not responding\n");
}

TEST(Show, Users) {
  EXPECT_EQ(render::users(Json::parse(R"({"users":[{"name":"ada","role":"admin","most_weight":2.5,
      "guaranteed":8,"tokens":["1f0c9a52b7de","aa"],"pages":[{"token":"bb","until":"2026-11-15T13:00:00Z"}]},
      {"name":"grace","role":"user","most_weight":1.0,"tokens":[]}]})"),
                          plain()),
            "USER   ROLE   WEIGHT  GUARANTEED  TOKENS           PAGES\n"
            "ada    admin     2.5           8  1f0c9a52b7de aa  bb until 2026-11-15 13:00:00\n"
            "grace  user        1\n");
}

TEST(Show, TopHasNodesBySlotsAndJobsWithBars) {
  const Json nodes = Json::parse(R"({"nodes":[
    {"id":0,"state":"up","gpus":4,"used":[{"gpu":0,"job":7,"worker":2},{"gpu":1,"job":7},
      {"gpu":3,"job":7}]},
    {"id":1,"state":"draining","gpus":4,"used":[{"gpu":2,"job":7},{"gpu":0,"job":null}]}]})");
  const Json jobs = {{"jobs", {running_job(), waiting_job()}}};
  const std::string frame = render::top(nodes, jobs, {{"policy", "afs-l"}}, plain(), 0);
  EXPECT_EQ(
      frame,
      "12:00:00  afs-l  5 of 8 GPUs in use, 1 running, 1 waiting\n"
      "\n"
      "node 0    up       [7.2   ][7.1   ][.     ][7.2   ]\n"
      "node 1    draining [other ][.     ][7.3   ][.     ]\n"
      "\n"
      "JOBID  NAME    USER   ST   TIME  GPUS  PROGRESS        DONE  ETA   SLACK   LOSS  REASON\n"
      "    7  resnet  ada    R   50:00     4  [#####-------]   42%  37m  +1h23m  0.731\n"
      "   12  bert    grace  PD   0:00     0  [------------]             -1m35s         needs 2 "
      "GPUs\n");
  EXPECT_EQ(render::top(nodes, jobs, {}, plain(), 3).find("node 1"), std::string::npos);
  auto narrow = plain();
  narrow.columns = 36;
  const std::string thin = render::top(nodes, jobs, {{"policy", "afs-l"}}, narrow, 0);
  for (const auto line : split(thin, '\n')) {
    EXPECT_LE(text_columns(line), 36) << line;
  }
}

TEST(Show, TopForALog) {
  Json nodes = Json::parse(R"({"nodes":[
    {"id":0,"state":"up","gpus":4,"used":[{"gpu":0,"job":7,"worker":12},{"gpu":3,"job":7,"worker":2}]},
    {"id":1,"state":"draining","gpus":4,"used":[{"gpu":0,"job":null}]}]})");
  Json jobs = {{"jobs", {running_job(), waiting_job()}}};
  EXPECT_EQ(
      render::top_lines(nodes, jobs, plain()),
      "12:00:00  node 0: 7.12 .    .    7.2   node 1 (draining): other .    .    .\n"
      "       7  resnet       R    4 GPUs [#####-------]  42%  eta 37m  slack +1h23m  loss 0.731\n"
      "      12  bert         PD   0 GPUs [------------]       slack -1m35s  (needs 2 GPUs)\n");
  const std::string gist = render::top_gist(nodes, jobs);
  jobs["jobs"][0]["progress"]["done"] = 0.9;
  EXPECT_EQ(render::top_gist(nodes, jobs), gist) << "progress alone is no news";
  nodes["nodes"][0]["used"][0]["worker"] = 13;
  EXPECT_NE(render::top_gist(nodes, jobs), gist);
}

TEST(Show, ColoursOnlyWhereAskedFor) {
  const Json list = {{"jobs", {running_job()}}};
  EXPECT_EQ(render::jobs(list, plain()).find('\x1b'), std::string::npos);
  auto look = plain();
  look.colour = true;
  EXPECT_NE(render::jobs(list, look).find("\x1b[32mR \x1b[0m"), std::string::npos);
}

// --- other people's text -------------------------------------------------------------------------

const std::string kHostile =
    "\x1b[2J\x1b]0;owned\x07\r\n\t\x9b\xc2\x9b"
    "31m\xe2\x80\xae"
    "evil\xff"
    "\x7f"
    "日本語";

Json hostile(Json json) {
  if (json.is_string() && !parse_wall_time(json.get<std::string>())) return Json(kHostile);
  if (json.is_structured()) {
    for (Json& value : json) value = hostile(value);
  }
  return json;
}

void expect_safe(const std::string& text) {
  EXPECT_FALSE(text.empty());
  EXPECT_TRUE(is_utf8(text));
  for (const auto line : split(text, '\n')) EXPECT_EQ(for_terminal(line), line);
}

Json nodes_answer() {
  return Json::parse(
      R"({"nodes":[{"id":0,"state":"up","gpus":2,"type":"t","used":[{"gpu":0,"job":7}],
    "since":"2026-11-16T09:00:00Z"}]})");
}

TEST(Show, NothingRawReachesTheTerminal) {
  const auto look = plain();
  const Json jobs = hostile({{"jobs", {running_job(), waiting_job()}}});
  Json events = Json::parse(
      R"({"events":[{"number":1,"at":"2026-11-16T11:00:00Z","type":"t","job":1,"text":"x"}]})");
  Json verdict = running_job();
  verdict["verdict"] = {{"admitted", nullptr}, {"text", "x"}};
  expect_safe(render::jobs(jobs, look));
  expect_safe(render::job(hostile(running_job()), hostile(events), look));
  expect_safe(render::submission(hostile(verdict), look));
  expect_safe(render::nodes(hostile(nodes_answer()), look));
  expect_safe(render::policy(hostile({{"policy", "x"}}), look));
  expect_safe(render::explanation(hostile(Json::parse(R"({"sentences":["a"],"would_change":["b"],
    "decision":{"policy":"p"}})")),
                                  look));
  expect_safe(render::history(hostile(events), look));
  expect_safe(
      render::health(hostile(Json::parse(R"({"problems":[{"what":"a","remedy":"b"}]})")), look));
  expect_safe(render::users(
      hostile(Json::parse(R"({"users":[{"name":"a","role":"r","tokens":["t"]}]})")), look));
  expect_safe(render::top(hostile(nodes_answer()), jobs, hostile({{"policy", "x"}}), look, 0));
  expect_safe(render::top_lines(hostile(nodes_answer()), jobs, look));
}

// Whatever replaces any value, something is shown and nothing is thrown.
TEST(Show, AnswersMayHaveAnyShape) {
  const std::vector<Json> odd = {nullptr,
                                 true,
                                 -1,
                                 1e300,
                                 "text",
                                 Json::array({1, "x", nullptr}),
                                 Json::object({{"id", "x"}}),
                                 18446744073709551615ULL};
  const auto look = plain();
  Random random(3);
  const auto disturbed = [&](const auto& self, Json json) -> Json {
    if (random.below(4) == 0) return odd[random.below(odd.size())];
    if (json.is_structured()) {
      for (Json& value : json) value = self(self, value);
    }
    return json;
  };
  for (int round = 0; round < 500; ++round) {
    const Json jobs = disturbed(disturbed, {{"jobs", {running_job(), waiting_job()}}});
    const Json nodes = disturbed(disturbed, nodes_answer());
    static_cast<void>(render::jobs(jobs, look));
    static_cast<void>(render::job(disturbed(disturbed, running_job()), jobs, look));
    static_cast<void>(render::nodes(nodes, look));
    static_cast<void>(render::top(nodes, jobs, jobs, look, 10));
    static_cast<void>(render::top_lines(nodes, jobs, look));
    static_cast<void>(render::top_gist(nodes, jobs));
    static_cast<void>(render::submission(disturbed(disturbed, running_job()), look));
    static_cast<void>(render::policy(jobs, look));
    static_cast<void>(render::explanation(jobs, look));
    static_cast<void>(render::history(nodes, look));
    static_cast<void>(render::users(nodes, look));
  }
}

// --- small texts ---------------------------------------------------------------------------------

TEST(Show, SmallTexts) {
  EXPECT_EQ(render::elapsed(7), "0:07");
  EXPECT_EQ(render::elapsed(3723), "1:02:03");
  EXPECT_EQ(render::elapsed(93784), "1-02:03:04");
  EXPECT_EQ(render::elapsed(-5), "0:00");
  EXPECT_EQ(render::rough(45), "45s");
  EXPECT_EQ(render::rough(4800), "1h20m");
  EXPECT_EQ(render::rough(7200), "2h");
  EXPECT_EQ(render::rough(2e5), "2d7h");
  EXPECT_EQ(render::bar(0.5, 4), "[##--]");
  EXPECT_EQ(render::bar(7, 4), "[####]");
  EXPECT_EQ(render::bar(-1, 4), "[----]");
  EXPECT_EQ(render::bar(NAN, 4), "[----]");
  EXPECT_EQ(render::short_state("RESIZING"), "RS");
  EXPECT_EQ(render::short_state("NEWER"), "N~");
  EXPECT_EQ(render::node_list({"1.2", "0.1", "0.0", "x", "0.9", 3}), "0[0-1,9],1[2]");
}

}  // namespace
}  // namespace rubato::client
