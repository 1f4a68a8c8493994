#include "rubato/api/routes.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

namespace rubato::api {
namespace {

const Caller kAda{"ada", false};
const Caller kRoot{"root", true};
const std::vector<std::string> kHosts{"localhost", "127.0.0.1", "[::1]"};

HttpHead head_of(const std::string& verb, const std::string& target, const std::string& body = "",
                 const std::string& type = "application/json") {
  HttpHead head{verb, target, {}};
  if (!body.empty()) {
    head.headers.emplace_back("content-type", type);
    head.headers.emplace_back("content-length", std::to_string(body.size()));
  }
  return head;
}

std::variant<HttpTask, HttpRefusal> handle(const HttpHead& head, const std::string& body,
                                           const Caller& caller) {
  auto routed = route(head, caller);
  if (auto* refused = std::get_if<HttpRefusal>(&routed)) return std::move(*refused);
  return std::get<RoutedRequest>(routed).with_body(body);
}

template <class T>
T asked(const std::string& verb, const std::string& target, const std::string& body = "",
        const Caller& caller = kRoot) {
  const auto task = handle(head_of(verb, target, body), body, caller);
  if (const auto* refused = std::get_if<HttpRefusal>(&task)) {
    ADD_FAILURE() << verb << " " << target << ": " << refused->status << " " << refused->sentence;
    return {};
  }
  return std::get<T>(std::get<Ask>(std::get<HttpTask>(task)));
}

HttpRefusal refused(const HttpHead& head, const std::string& body = "",
                    const Caller& caller = kRoot) {
  const auto task = handle(head, body, caller);
  const auto* refusal = std::get_if<HttpRefusal>(&task);
  if (refusal == nullptr) {
    ADD_FAILURE() << head.verb << " " << head.target << " was not refused";
    return {};
  }
  EXPECT_FALSE(refusal->sentence.empty());
  EXPECT_EQ(refusal->sentence.find('\n'), std::string::npos);
  return *refusal;
}

HttpRefusal refused(const std::string& verb, const std::string& target,
                    const std::string& body = "", const Caller& caller = kRoot) {
  return refused(head_of(verb, target, body), body, caller);
}

TEST(Api, ReadsASubmission) {
  HttpHead head = head_of("POST", "/v1/jobs?dry_run=1", R"({"command":["train"],"name":"a"})");
  head.headers.emplace_back("idempotency-key", "k-1");
  const auto task = handle(head, R"({"command":["train"],"name":"a"})", kAda);
  const auto& submit = std::get<SubmitJob>(std::get<Ask>(std::get<HttpTask>(task)));
  EXPECT_EQ(submit.file.command, std::vector<std::string>{"train"});
  EXPECT_EQ(submit.file.name, "a");
  EXPECT_EQ(submit.key, "k-1");
  EXPECT_TRUE(submit.dry_run);
}

TEST(Api, ReadsYamlWhereItIsSaidToBe) {
  const std::string body = "command: [train, --fast]\nname: b\n";
  const auto task =
      handle(head_of("POST", "/v1/jobs", body, "application/yaml; charset=utf-8"), body, kAda);
  const auto& submit = std::get<SubmitJob>(std::get<Ask>(std::get<HttpTask>(task)));
  EXPECT_EQ(submit.file.command.size(), 2U);
  EXPECT_EQ(refused(head_of("POST", "/v1/jobs", body), body).status, 422) << "this is no JSON";
}

TEST(Api, JobFilesHaveOneLimitInBothLanguages) {
  const std::string long_name(kLargestJobFile, 'x');
  for (const std::string type : {"application/json", "application/yaml"}) {
    const std::string body = R"({"command":["a"],"env":{"A":")" + long_name + "\"}}";
    EXPECT_EQ(refused(head_of("POST", "/v1/jobs", body, type), body).status, 413);
    // Without a length in its head, it is the file that is too large.
    HttpHead chunked = head_of("POST", "/v1/jobs", body, type);
    std::erase_if(chunked.headers, [](const auto& one) { return one.first == "content-length"; });
    chunked.headers.emplace_back("transfer-encoding", "chunked");
    EXPECT_EQ(refused(chunked, body).status, 422);
  }
}

TEST(Api, ReadsEveryQuestion) {
  EXPECT_EQ(std::get<JobId>(asked<ShowJob>("GET", "/v1/jobs/7").job), JobId(7));
  EXPECT_EQ(std::get<std::string>(asked<ShowJob>("GET", "/v1/jobs/my%20net").job), "my net");
  EXPECT_EQ(std::get<JobId>(asked<CancelJob>("DELETE", "/v1/jobs/7").job), JobId(7));
  EXPECT_TRUE(asked<HoldJob>("POST", "/v1/jobs/a/hold").on);
  EXPECT_FALSE(asked<HoldJob>("POST", "/v1/jobs/a/release").on);
  asked<ExplainJob>("GET", "/v1/jobs/a/explain");
  asked<ShowPast>("GET", "/v1/jobs/a/past");
  const auto list =
      asked<ListJobs>("GET", "/v1/jobs?state=PENDING,RUNNING&user=ada&after=3&limit=5");
  EXPECT_EQ(list.states, (std::vector{JobState::pending, JobState::running}));
  EXPECT_EQ(asked<ListJobs>("GET", "/v1/jobs?state=CD,PD,R,RS,CG,F,CA,RF,PF,HD").states.size(),
            10U);
  EXPECT_EQ(asked<ListJobs>("GET", "/v1/jobs?state=CD").states, (std::vector{JobState::completed}));
  EXPECT_EQ(list.user, "ada");
  EXPECT_EQ(list.after, JobId(3));
  EXPECT_EQ(list.limit, 5);
  const auto history = asked<History>("GET", "/v1/history?job=9&after=12");
  EXPECT_EQ(std::get<JobId>(history.job.value()), JobId(9));
  EXPECT_EQ(history.after, 12U);
  asked<ShowNodes>("GET", "/v1/nodes");
  EXPECT_EQ(asked<SetNode>("POST", "/v1/nodes/1", R"({"state":"drain"})").state,
            NodeState::draining);
  EXPECT_EQ(asked<SetNode>("POST", "/v1/nodes/1", R"({"state":"resume"})").state, NodeState::up);
  EXPECT_EQ(asked<SetNode>("POST", "/v1/nodes/1", R"({"state":"down"})").node, NodeRef("1"));
  EXPECT_EQ(asked<SetNode>("POST", "/v1/nodes/gpu%2007", R"({"state":"down"})").node,
            NodeRef("gpu 07"));
  asked<ShowPolicy>("GET", "/v1/policy");
  EXPECT_EQ(asked<SwitchPolicy>("PUT", "/v1/policy", R"({"policy":"srtf"})").policy, "srtf");
  asked<ListUsers>("GET", "/v1/users");
  const auto user =
      asked<AddUser>("POST", "/v1/users", R"({"name":"bo","role":"admin","weight":2.5})");
  EXPECT_EQ(user.name, "bo");
  EXPECT_TRUE(user.admin);
  EXPECT_EQ(user.most_weight, 2.5);
  EXPECT_EQ(asked<RemoveUser>("DELETE", "/v1/users/bo").name, "bo");
  EXPECT_EQ(asked<AddToken>("POST", "/v1/users/bo/tokens").user, "bo");
  EXPECT_EQ(asked<RemoveToken>("DELETE", "/v1/users/bo/tokens/abc").token, "abc");
  asked<ShowHealth>("GET", "/v1/health");
  asked<ClosePage>("DELETE", "/v1/page/session");
}

TEST(Api, ReadsTimesAndSpans) {
  const auto timeline =
      asked<ShowTimeline>("GET", "/v1/timeline?since=2026-11-18T09:00:00%2B01:00&until=30m");
  EXPECT_EQ(timeline.since, Moment(WallTime(std::chrono::seconds(1794988800))));
  EXPECT_EQ(timeline.until, Moment(Duration(std::chrono::minutes(30))));
  EXPECT_EQ(asked<ShowTimeline>("GET", "/v1/timeline").since,
            Moment(Duration(std::chrono::hours(1))));
  const auto decisions = asked<ShowDecisions>("GET", "/v1/decisions?before=7&limit=3", "", kAda);
  EXPECT_EQ(decisions.before, 7U);
  EXPECT_EQ(decisions.limit, 3);
  EXPECT_FALSE(decisions.since);
  EXPECT_EQ(asked<ShowUse>("GET", "/v1/use?since=2d").since,
            Moment(Duration(std::chrono::hours(48))));
  for (const char* bad : {"", "yesterday", "2026-11-18", "-1h", "1e99d"})
    EXPECT_EQ(refused("GET", std::string("/v1/use?since=") + bad).status, 400) << bad;
  EXPECT_EQ(refused("GET", "/v1/timeline?until=soon").status, 400);
  EXPECT_EQ(refused("GET", "/v1/decisions?limit=0").status, 400);
}

TEST(Api, ReadsWhatIfs) {
  const auto read = [](const std::string& verb, const std::string& path, const std::string& body) {
    const auto task = handle(head_of(verb, path, body), body, kRoot);
    return std::get<WhatIfAsk>(std::get<HttpTask>(task));
  };
  const auto start = std::get<StartWhatIf>(
      read("POST", "/v1/whatif", R"({"since":"2h","until":"5m","policies":["afs-l","as-run"]})"));
  EXPECT_EQ(start.since, Moment(Duration(std::chrono::hours(2))));
  EXPECT_EQ(start.until, Moment(Duration(std::chrono::minutes(5))));
  EXPECT_EQ(start.policies, (std::vector<std::string>{"afs-l", "as-run"}));
  EXPECT_EQ(std::get<ShowWhatIf>(read("GET", "/v1/whatif/7", "")).id, 7U);
  EXPECT_EQ(std::get<StopWhatIf>(read("DELETE", "/v1/whatif/7", "")).id, 7U);
  for (const char* bad :
       {"{}", R"({"policies":[]})", R"({"policies":"srtf"})", R"({"policies":[1]})",
        R"({"policies":[""]})", R"({"policies":["srtf"],"since":"soon"})",
        R"({"policies":["srtf"],"until":3})", R"({"policies":["srtf"],"extra":1})",
        R"({"policies":["a","b","c","d","e","f","g","h","i"]})"})
    EXPECT_EQ(refused("POST", "/v1/whatif", bad).status, 400) << bad;
  EXPECT_EQ(refused("GET", "/v1/whatif/x").status, 404);
  EXPECT_EQ(refused("GET", "/v1/whatif/-1").status, 404);
  for (const char* verb : {"GET", "DELETE"})
    EXPECT_EQ(refused(verb, "/v1/whatif/1", "", kAda).status, 403);
  EXPECT_EQ(refused("POST", "/v1/whatif", R"({"policies":["srtf"]})", kAda).status, 403);
}

TEST(Api, ReadsSizes) {
  const auto fixed = asked<ResizeJob>("POST", "/v1/jobs/1/resize", R"({"gpus":4})");
  EXPECT_EQ(fixed.limits.min, 4);
  EXPECT_EQ(fixed.limits.max, 4);
  const auto range =
      asked<ResizeJob>("POST", "/v1/jobs/1/resize", R"({"min":1,"max":8,"allowed":[1,2,4,8]})");
  EXPECT_EQ(range.limits.allowed.size(), 4U);
  for (const char* bad :
       {R"({"gpus":0})", R"({"gpus":-1})", R"({"gpus":1.5})", R"({"gpus":"4"})", R"({"min":1})",
        R"({"min":4,"max":2})", R"({"gpus":4,"max":8})", R"({"min":1,"max":4,"allowed":[2,1]})",
        R"({"min":1,"max":4,"allowed":[8]})", R"({"min":1,"max":4,"allowed":4})", R"({})", R"([])",
        R"({"gpus":18446744073709551615})", R"({"gpu":4})", "nonsense"}) {
    EXPECT_EQ(refused("POST", "/v1/jobs/1/resize", bad).status, 400) << bad;
  }
}

TEST(Api, ReadsLogsAndEvents) {
  const auto log = handle(head_of("GET", "/v1/jobs/3/log?from=-100&follow=1"), "", kAda);
  const auto& reading = std::get<ReadLog>(std::get<HttpTask>(log));
  EXPECT_EQ(reading.from, -100);
  EXPECT_TRUE(reading.follow);
  HttpHead head = head_of("GET", "/v1/events");
  head.headers.emplace_back("last-event-id", "e-7");
  const auto events = handle(head, "", kAda);
  EXPECT_EQ(std::get<WatchEvents>(std::get<HttpTask>(events)).last_event_id, "e-7");
}

TEST(Api, SaysWhatIsWrong) {
  EXPECT_EQ(refused("GET", "/nothing").status, 404);
  EXPECT_EQ(refused("GET", "/v1/jobs/").status, 404);
  EXPECT_EQ(refused("GET", "/v1/jobs/1/").status, 404);
  EXPECT_EQ(refused("GET", "").status, 404);
  EXPECT_EQ(refused("GET", "/v1/jobs/1/log/more").status, 404);
  EXPECT_EQ(refused("GET", "/v1/jobs/99999999999999999999").status, 404);
  EXPECT_EQ(refused("GET", "/v1/jobs/a%zz").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs/a%0a").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs/a%ff").status, 400) << "no UTF-8";
  EXPECT_EQ(refused("GET", "/v1/jobs?stat=PENDING").sentence,
            "GET /v1/jobs takes no parameter \"stat\"; did you mean state?");
  EXPECT_EQ(refused("GET", "/v1/jobs?limit=1&limit=2").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs?limit=0").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs?limit=1001").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs?state=pending").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs/1/log?follow=yes").status, 400);
  EXPECT_EQ(refused("GET", "/v1/jobs", "{}").status, 400) << "a body where none belongs";
  EXPECT_EQ(refused("POST", "/v1/jobs", R"({"commandd":["a"]})").status, 422);
  EXPECT_EQ(refused("POST", "/v1/jobs", "{").status, 422);
  EXPECT_EQ(refused("POST", "/v1/nodes/1", R"({"state":"up"})").status, 400);
  EXPECT_EQ(refused("POST", "/v1/users", R"({"name":"../etc"})").status, 400);
  EXPECT_EQ(refused("POST", "/v1/users", R"({"name":"7"})").status, 400);
  EXPECT_EQ(refused("POST", "/v1/users", R"({"name":"bo","role":"god"})").status, 400);
  EXPECT_EQ(refused("POST", "/v1/users", R"({"name":"bo","weight":0})").status, 400);
}

TEST(Api, NamesTheVerbsThatAPathTakes) {
  const auto refusal = refused("PUT", "/v1/jobs/3");
  EXPECT_EQ(refusal.status, 405);
  EXPECT_EQ(refusal.allow, "GET, HEAD, DELETE");
  EXPECT_EQ(refused("HEAD", "/v1/users/bo").allow, "DELETE");
}

TEST(Api, HeadAsksWhatGetWould) {
  EXPECT_EQ(std::get<JobId>(asked<ShowJob>("HEAD", "/v1/jobs/7").job), JobId(7));
  EXPECT_EQ(refused("HEAD", "/nothing").status, 404);
}

TEST(Api, ReadsWhichJobsToCancel) {
  const auto cancel = [](const char* body) {
    return asked<CancelJobs>("POST", "/v1/jobs/cancel", body, kAda);
  };
  EXPECT_TRUE(cancel(R"({"all":true})").all);
  const auto ask = cancel(
      R"({"jobs":[7,"resnet","8",99999999999],"user":"ada","states":["PENDING"],"name":"a*"})");
  ASSERT_EQ(ask.jobs.size(), 4U);
  EXPECT_EQ(ask.jobs[0], JobRef(JobId(7)));
  EXPECT_EQ(ask.jobs[1], JobRef(std::string("resnet")));
  EXPECT_EQ(ask.jobs[2], JobRef(JobId(8)));
  EXPECT_EQ(ask.jobs[3], JobRef(std::string("99999999999"))) << "no job has that number";
  EXPECT_EQ(ask.user, "ada");
  EXPECT_EQ(ask.states, std::vector<JobState>{JobState::pending});
  EXPECT_EQ(ask.name, "a*");
  for (const char* body :
       {"{}", R"({"all":false})", R"({"jobs":[]})", R"({"jobs":7})", R"({"jobs":[-1]})",
        R"({"jobs":[1.5]})", R"({"states":[]})", R"({"states":"PENDING"})",
        R"({"states":["LOST"]})", R"({"name":""})", R"({"user":7})", R"({"alll":true})", "[]"}) {
    EXPECT_EQ(refused("POST", "/v1/jobs/cancel", body, kAda).status, 400) << body;
  }
  // A job may be called so.
  EXPECT_EQ(asked<ShowJob>("GET", "/v1/jobs/cancel").job, JobRef(std::string("cancel")));
}

TEST(Api, RefusesWhatTwoReadersWouldReadDifferently) {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  const auto check = [](Headers headers, unsigned version = 11) {
    const auto refusal = check_framing({"POST", "/v1/jobs", std::move(headers)}, version);
    return refusal ? refusal->status : 0;
  };
  EXPECT_EQ(check({}), 0);
  EXPECT_EQ(check({{"content-length", "5"}}), 0);
  EXPECT_EQ(check({{"transfer-encoding", "Chunked"}}), 0);
  EXPECT_EQ(check({{"transfer-encoding", "chunked"}}, 10), 400);
  EXPECT_EQ(check({{"content-length", "5"}, {"content-length", "5"}}), 400);
  for (const char* length : {"5, 5", "+5", "-5", "0x5", "", "5 5"})
    EXPECT_EQ(check({{"content-length", length}}), 400) << length;
  EXPECT_EQ(check({{"content-length", "5"}, {"transfer-encoding", "chunked"}}), 400);
  EXPECT_EQ(check({{"transfer-encoding", "chunked"}, {"transfer-encoding", "chunked"}}), 400);
  for (const char* other :
       {"gzip", "gzip, chunked", "chunked, gzip", "chunked;q=1", "xchunked", "", "identity",
        "\x0b"
        "chunked"}) {
    EXPECT_EQ(check({{"transfer-encoding", other}}), 400) << other;
  }
  EXPECT_FALSE(check_raw_head("GET / HTTP/1.1\r\nA: b\r\n\r\n"));
  EXPECT_TRUE(check_raw_head("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"));
  EXPECT_TRUE(check_raw_head("GET / HTTP/1.1\r\n\tA: b\r\n\r\n"));
}

TEST(Api, TakesWholeAddressesAsProxiesSendThem) {
  const auto take = [](const std::string& target) {
    HttpHead head{"GET", target, {{"host", "other"}}};
    const auto refusal = take_absolute_form(head);
    return refusal ? std::to_string(refusal->status) : head.headers[0].second + " " + head.target;
  };
  EXPECT_EQ(take("http://localhost:80/v1/jobs?limit=1"), "localhost:80 /v1/jobs?limit=1");
  EXPECT_EQ(take("HTTP://localhost"), "localhost /");
  EXPECT_EQ(take("http://localhost?a"), "localhost /?a");
  EXPECT_EQ(take("http://evil@localhost/x"), "evil@localhost /x") << "check_origin refuses it";
  EXPECT_EQ(take("http:///v1/jobs"), "400");
  EXPECT_EQ(take("/http://a/b"), "other /http://a/b");
  EXPECT_EQ(take("https://localhost/"), "other https://localhost/") << "nothing is there";
}

TEST(Api, NeedsLengthsAndTypesOfBodies) {
  EXPECT_EQ(refused({"POST", "/v1/jobs", {{"content-type", "application/json"}}}).status, 411);
  const std::string body = "{}";
  EXPECT_EQ(refused(head_of("POST", "/v1/jobs", body, "text/plain"), body).status, 415);
  EXPECT_EQ(refused(head_of("PUT", "/v1/policy", body, "application/yaml"), body).status, 415);
  HttpHead head = head_of("POST", "/v1/jobs");
  head.headers = {{"content-type", "application/json"}, {"content-length", "99999999"}};
  EXPECT_EQ(refused(head).status, 413);
}

TEST(Api, BoundsTheDepthOfBodies) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_EQ(refused("PUT", "/v1/policy", deep).status, 400);
  EXPECT_EQ(refused("POST", "/v1/jobs", deep).status, 422);
}

TEST(Api, KeepsWhatConcernsEverybodyToAdmins) {
  for (const auto& [verb, target] :
       std::vector<std::pair<std::string, std::string>>{{"POST", "/v1/nodes/0"},
                                                        {"PUT", "/v1/policy"},
                                                        {"GET", "/v1/users"},
                                                        {"POST", "/v1/users"},
                                                        {"DELETE", "/v1/users/bo"},
                                                        {"POST", "/v1/users/bo/tokens"},
                                                        {"DELETE", "/v1/users/bo/tokens/a"}}) {
    EXPECT_EQ(refused(verb, target, "", kAda).status, 403) << verb << " " << target;
  }
  EXPECT_TRUE(needs_admin(SetNode{}));
  EXPECT_FALSE(needs_admin(ShowNodes{}));
}

TEST(Api, ChecksHostAndOrigin) {
  const auto check = [](std::vector<std::pair<std::string, std::string>> headers) {
    const auto refusal = check_origin({"GET", "/v1/jobs", std::move(headers)}, kHosts);
    return refusal ? refusal->status : 0;
  };
  EXPECT_EQ(check({{"host", "localhost"}}), 0);
  EXPECT_EQ(check({{"host", "LocalHost:80"}}), 0);
  EXPECT_EQ(check({{"host", "127.0.0.1:8080"}}), 0);
  EXPECT_EQ(check({{"host", "[::1]:8080"}}), 0);
  EXPECT_EQ(check({}), 400);
  EXPECT_EQ(check({{"host", ""}}), 403);
  EXPECT_EQ(check({{"host", "localhost"}, {"host", "localhost"}}), 400);
  EXPECT_EQ(check({{"host", "evil.example"}}), 403);
  EXPECT_EQ(check({{"host", "localhost.evil.example"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:80@evil"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:"}}), 403);
  EXPECT_EQ(check({{"host", "[::1"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:80"}, {"origin", "http://localhost:80"}}), 0);
  EXPECT_EQ(check({{"host", "localhost:80"}, {"origin", "http://localhost:81"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:80"}, {"origin", "https://localhost:80"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:80"}, {"origin", "null"}}), 403);
  EXPECT_EQ(check({{"host", "localhost:80"}, {"origin", ""}}), 403);
}

TEST(Api, ReadsBearerTokens) {
  const auto token = [](const std::string& value) {
    const auto found = bearer_token({"GET", "/", {{"authorization", value}}});
    const auto* text = std::get_if<std::string>(&found);
    return text != nullptr ? *text : "refused";
  };
  EXPECT_EQ(token("Bearer rub_abc"), "rub_abc");
  EXPECT_EQ(token("bearer  rub_abc "), "rub_abc");
  for (const char* bad : {"Basic YTpi", "Bearer", "Bearer ", "rub_abc", "Bearer a b", ""}) {
    EXPECT_EQ(token(bad), "refused") << bad;
  }
  EXPECT_EQ(std::get<std::string>(bearer_token({"GET", "/", {}})), "");
}

TEST(Api, ThePageNeedsNoTokenForItsFilesAndItsCode) {
  for (const char* target : {"/", "/?x", "/assets/page-0f3a.js", "/assets/../v1/jobs"})
    EXPECT_TRUE(is_for_page({"GET", target, {}})) << target;
  EXPECT_TRUE(is_for_page({"HEAD", "/", {}}));
  EXPECT_TRUE(is_for_page({"POST", "/v1/page/session", {}}));
  for (const char* target : {"/v1/page/session", "/v1/jobs", "/asset", "/metrics", "//"})
    EXPECT_FALSE(is_for_page({"GET", target, {}})) << target;
  EXPECT_FALSE(is_for_page({"POST", "/v1/page/codes", {}}));
  EXPECT_FALSE(is_for_page({"DELETE", "/v1/page/session", {}}));
  EXPECT_FALSE(is_for_page({"POST", "/", {}}));
}

TEST(Api, RoutesAreAllDifferent) {
  auto routes = api_routes();
  std::sort(routes.begin(), routes.end());
  EXPECT_EQ(std::adjacent_find(routes.begin(), routes.end()), routes.end());
}

TEST(Request, StatesReadBack) {
  for (int i = 0; i <= static_cast<int>(JobState::refused); ++i) {
    const auto state = static_cast<JobState>(i);
    EXPECT_EQ(parse_job_state(to_text(state)), state);
  }
  EXPECT_FALSE(parse_job_state("pending"));
}

}  // namespace
}  // namespace rubato::api
