#include "rubato/daemon/what_if_runs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/daemon/what_if.h"
#include "rubato/jobfile/times.h"
#include "rubato/policy/all.h"

namespace rubato::daemon {
namespace {

constexpr std::size_t kResultsKept = 4;
constexpr std::size_t kLargestResult = std::size_t{64} << 20U;
constexpr std::size_t kLongestError = 2000;
// A child that is told to end removes its files.
constexpr std::chrono::seconds kEndsWithin{2};

TextAnswer refused(int status, const std::string& sentence) {
  return {status, Json{{"error", sentence}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

TextAnswer no_such(std::uint64_t id) {
  return refused(404, fmt::format("there is no what-if {}", id));
}

std::string text_of(const Moment& moment) {
  return std::visit([](const auto& one) { return jobfile::to_text(one); }, moment);
}

// Reads what is there. False at the end.
bool read_some(int fd, std::string& into, std::size_t most) {
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) {
      if (into.size() < most) into.append(buffer.data(), static_cast<std::size_t>(got));
      continue;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
}

}  // namespace

WhatIfRuns::~WhatIfRuns() {
  for (auto& [id, run] : runs_) {
    if (!run.process) continue;
    launch::send_signal(*run.process, SIGTERM);
    const auto patience = std::chrono::steady_clock::now() + kEndsWithin;
    while (!launch::reap(*run.process)) {
      if (std::chrono::steady_clock::now() > patience) launch::send_signal(*run.process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

void WhatIfRuns::ask(WhatIfAsk ask, std::function<void(TextAnswer)> callback) {
  poller_.post([this, ask = std::move(ask), callback = std::move(callback)] {
    callback(std::visit([this](const auto& one) { return answer(one); }, ask));
  });
}

TextAnswer WhatIfRuns::answer(const StartWhatIf& ask) {
  for (const auto& [id, run] : runs_) {
    if (run.process)
      return refused(409, fmt::format("what-if {} is running; wait for it, or cancel it with "
                                      "DELETE /v1/whatif/{}",
                                      id, id));
  }
  if (const auto parsed = parse_what_if_policies(ask.policies); !parsed)
    return refused(400, parsed.error().message);
  std::string list;
  for (const std::string& policy : ask.policies) list += (list.empty() ? "" : ",") + policy;
  std::vector<std::string> command = {
      launch::kRunningProgram, "whatif",   "--journal", directory_, "--lines", "--since",
      text_of(ask.since),      "--policy", list};
  if (ask.until) {
    command.emplace_back("--until");
    command.push_back(text_of(*ask.until));
  }
  launch::SpawnOptions options;
  options.niced = true;
  options.close_others = true;
  auto process = launch::spawn(command, launch::own_environment(), options);
  if (!process)
    return refused(503,
                   fmt::format("the what-if could not be started: {}", process.error().message));
  const std::uint64_t id = next_++;
  runs_[id].process = std::move(*process);
  watch(id);
  forget_old();
  return show(id, runs_[id], 202);
}

TextAnswer WhatIfRuns::answer(const ShowWhatIf& ask) const {
  const auto found = runs_.find(ask.id);
  return found == runs_.end() ? no_such(ask.id) : show(ask.id, found->second, 200);
}

TextAnswer WhatIfRuns::answer(const StopWhatIf& ask) {
  const auto found = runs_.find(ask.id);
  if (found == runs_.end()) return no_such(ask.id);
  Run& run = found->second;
  if (run.process) {
    run.state = "cancelled";
    launch::send_signal(*run.process, SIGTERM);
  }
  return show(ask.id, run, 200);
}

TextAnswer WhatIfRuns::show(std::uint64_t id, const Run& run, int status) {
  Json body = {{"id", id}, {"state", run.state}, {"progress", run.progress}};
  if (!run.error.empty()) body["error"] = run.error;
  std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (run.state == "done") {
    text.pop_back();
    text += fmt::format(",\"result\":{}}}", run.result);
  }
  return {status, std::move(text)};
}

void WhatIfRuns::watch(std::uint64_t id) {
  const launch::Process& process = *runs_[id].process;
  for (const int fd : {process.out.get(), process.err.get()})
    poller_.add(fd, [this, id](wire::Poller::Ready) { read_output(id); });
  poller_.add(process.ended.get(), [this, id](wire::Poller::Ready) { end(id); });
}

void WhatIfRuns::read_output(std::uint64_t id) {
  Run& run = runs_[id];
  if (!run.process) return;
  for (const auto& [fd, into, most] :
       {std::tuple(run.process->out.get(), &run.line, kLargestResult),
        std::tuple(run.process->err.get(), &run.said, kLongestError)}) {
    if (!read_some(fd, *into, most)) poller_.remove(fd);
  }
  const std::string_view text = run.line;
  std::size_t begin = 0;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    take_line(run, text.substr(begin, end - begin));
    begin = end + 1;
  }
  run.line.erase(0, begin);
}

void WhatIfRuns::take_line(Run& run, std::string_view line) const {
  constexpr std::string_view kProgress = "progress ";
  constexpr std::string_view kResult = "result ";
  if (line.starts_with(kProgress)) {
    const auto share = parse_double(line.substr(kProgress.size()));
    if (share) run.progress = std::clamp(*share, 0.0, 1.0);
  } else if (line.starts_with(kResult)) {
    run.result = line.substr(kResult.size());
  }
}

void WhatIfRuns::end(std::uint64_t id) {
  Run& run = runs_[id];
  if (!run.process || !launch::reap(*run.process)) return;
  read_output(id);
  for (const int fd : {run.process->out.get(), run.process->err.get(), run.process->ended.get()})
    poller_.remove(fd);
  run.process.reset();
  run.line.clear();
  if (run.state == "cancelled") return;
  run.state = run.result.empty() ? "failed" : "done";
  if (run.state == "done") {
    run.progress = 1;
    return;
  }
  std::string_view why = trim(run.said);
  constexpr std::string_view kPrefix = "rubato: ";
  if (why.starts_with(kPrefix)) why.remove_prefix(kPrefix.size());
  run.error = why.empty() ? "its process ended without a result" : std::string(why);
}

void WhatIfRuns::forget_old() {
  while (runs_.size() > kResultsKept) runs_.erase(runs_.begin());
}

}  // namespace rubato::daemon
