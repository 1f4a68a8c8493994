#include "rubato/client/client.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/unicode.h"
#include "rubato/client/render.h"

namespace rubato::client {
namespace {

using std::chrono::milliseconds;

constexpr JsonLimits kAnswer{std::size_t{256} << 20U, 64};
constexpr int kPage = 500;
constexpr milliseconds kBetweenLooks{500};
// 0.1, 0.2, 0.4 ... 5 seconds: about 11 seconds in total. A daemon restarts in that time.
constexpr int kAttempts = 8;
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5'000};

milliseconds pause_before(int attempt) {
  return std::min(kFirstPause * (1 << (attempt - 1)), kLongestPause);
}

std::string field_text(const Json& json, const char* name) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_string()) return "";
  return json[name].get<std::string>();
}

}  // namespace

Exit exit_of_status(int status) {
  if (status >= 200 && status < 300) return Exit::ok;
  if (status == 401 || status == 403) return Exit::not_allowed;
  if (status == 404) return Exit::not_found;
  if (status == 409) return Exit::refused;
  // Too many requests, a full disk, a daemon that is stopping: the same request may succeed later.
  if (status == 429 || status >= 500) return Exit::no_daemon;
  return Exit::bad_input;
}

std::string job_target(const std::string& job, std::string_view rest) {
  return fmt::format("/v1/jobs/{}{}", escape(job), rest);
}

Said Client::said(const Result<HttpReply>& reply) const {
  if (!reply) return {Exit::no_daemon, {}, for_terminal(reply.error().message)};
  Said said;
  said.exit = exit_of_status(reply->status);
  if (reply->body.empty()) {
    if (!said.ok()) said.error = fmt::format("the daemon answered {}", reply->status);
    return said;
  }
  auto json = parse_json(reply->body, "the daemon's answer", kAnswer);
  if (json) said.body = std::move(*json);
  if (said.ok()) {
    if (json) return said;
    return {Exit::no_daemon, {}, for_terminal(json.error().message)};
  }
  const std::string error = field_text(said.body, "error");
  said.error =
      error.empty() ? fmt::format("the daemon answered {}", reply->status) : for_terminal(error);
  return said;
}

Said Client::ask(const HttpCall& call) const { return said(http_.send(call)); }

Said Client::get(const std::string& target) const { return ask({"GET", target, {}, {}}); }

Said Client::post(const std::string& target, const Json& body) const {
  const std::string text =
      body.is_null() ? "" : body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return ask({"POST", target, {}, text});
}

Said Client::submit(const Json& job, const std::string& key, bool dry_run) const {
  auto first = http_.connect();
  if (!first) return said(first.error());
  const HttpCall call{"POST",
                      dry_run ? "/v1/jobs?dry_run=1" : "/v1/jobs",
                      {{"Idempotency-Key", key}},
                      job.dump(-1, ' ', false, Json::error_handler_t::replace)};
  const auto reply = first->send(call);
  Said answer = said(reply);
  // The program that listens there is not a daemon of Rubato, or does not answer.
  if (!reply && !first->lost()) return answer;
  for (int attempt = 1; answer.exit == Exit::no_daemon && attempt < kAttempts; ++attempt) {
    pause_(pause_before(attempt));
    answer = ask(call);
  }
  return answer;
}

Said Client::list(const Filter& filter) const {
  Json jobs = Json::array();
  std::string after;
  for (;;) {
    const int left = filter.most > 0 ? filter.most - static_cast<int>(jobs.size()) : kPage;
    std::string target = fmt::format("/v1/jobs?limit={}", std::min(left, kPage));
    if (!filter.states.empty()) target += "&state=" + escape(filter.states);
    if (!filter.user.empty()) target += "&user=" + escape(filter.user);
    if (!after.empty()) target += "&after=" + after;
    Said page = get(target);
    if (!page.ok()) return page;
    const bool listed =
        page.body.is_object() && page.body.contains("jobs") && page.body["jobs"].is_array();
    if (!listed) return {Exit::no_daemon, {}, "the daemon's answer is no list of jobs"};
    for (Json& job : page.body["jobs"]) jobs.push_back(std::move(job));
    const Json next = page.body.value("next", Json());
    const bool full = filter.most > 0 && static_cast<int>(jobs.size()) >= filter.most;
    // If the daemon returned the same page again, this would be an endless loop.
    if (!next.is_number_integer() || next.dump() == after || full) {
      return {Exit::ok, {{"jobs", std::move(jobs)}, {"next", full ? next : Json()}}, ""};
    }
    after = next.dump();
  }
}

Said Client::wait_for(const std::string& job, const std::function<void(const Json&)>& changed,
                      milliseconds patience, const std::function<bool()>& late) const {
  std::string state;
  milliseconds away{0};
  for (;;) {
    Said look = get(job_target(job));
    const bool ended = look.ok() && render::has_ended(field_text(look.body, "state"));
    if (!ended && late && late()) {
      look.exit = Exit::timed_out;
      look.error = fmt::format("job {}: has not ended in time", for_terminal(job));
      return look;
    }
    if (look.exit == Exit::no_daemon) {
      if (away >= patience) return look;
      away += kBetweenLooks;
      pause_(kBetweenLooks);
      continue;
    }
    if (!look.ok()) return look;
    away = milliseconds{0};
    const std::string now = field_text(look.body, "state");
    if (now != state) changed(look.body);
    state = now;
    if (render::has_ended(state)) {
      if (state != "COMPLETED") {
        look.exit = Exit::refused;
        look.error = fmt::format("job {}: {}", for_terminal(job), for_terminal(state));
      }
      return look;
    }
    pause_(kBetweenLooks);
  }
}

Said Client::log(const std::string& job, const LogWish& wish,
                 const std::function<bool(std::string_view)>& each) const {
  std::int64_t from = wish.from;
  int attempt = 0;
  for (;;) {
    bool stopped = false;
    const HttpCall call{
        "GET",
        job_target(job, fmt::format("/log?from={}&follow={}", from, wish.follow ? 1 : 0)),
        {},
        {}};
    const auto reply = http_.stream(call, [&](std::string_view bytes) {
      attempt = 0;
      // A position that is counted from the end cannot be continued after a lost connection.
      if (from >= 0) from += static_cast<std::int64_t>(bytes.size());
      stopped = !each(bytes);
      return !stopped;
    });
    Said answer = reply && reply->good() ? Said{} : said(reply);
    if (stopped || answer.ok()) return {};
    const bool again = answer.exit == Exit::no_daemon && wish.follow && from >= 0;
    if (!again || ++attempt >= kAttempts) return answer;
    pause_(pause_before(attempt));
  }
}

}  // namespace rubato::client
