#include "rubato/launch/terminal_run.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kLastWords = 3s;
constexpr Duration kStatusEvery = 500ms;
constexpr Duration kLineEvery = 5s;

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// --- start and end
// --------------------------------------------------------------------------------

Result<std::unique_ptr<TerminalRun>> TerminalRun::open(TerminalOptions options) {
  std::FILE* log = nullptr;
  if (!options.log.empty()) {
    log = std::fopen(options.log.c_str(), "ae");
    if (log == nullptr) {
      return Error{fmt::format("--log {}: {}", options.log, std::strerror(errno))};
    }
  }
  auto socket = claim_run(options.directory, options.spec.name);
  if (!socket) {
    if (log != nullptr) std::fclose(log);
    return socket.error();
  }
  return std::unique_ptr<TerminalRun>(new TerminalRun(std::move(options), std::move(*socket), log));
}

TerminalRun::TerminalRun(TerminalOptions options, RunSocket socket, std::FILE* log)
    : options_(std::move(options)),
      log_(log),
      console_(options_.json ? STDERR_FILENO : STDOUT_FILENO, STDERR_FILENO,
               isatty(STDERR_FILENO) != 0 && !options_.quiet),
      launcher_(options_.spec, std::move(socket), *this) {}

TerminalRun::~TerminalRun() {
  if (log_ != nullptr) std::fclose(log_);
}

int TerminalRun::run() {
  const LaunchLimits& limits = options_.spec.limits;
  say(fmt::format("{}: {} of {}:{}", options_.spec.name, count_of(limits.start, "worker"),
                  limits.least, limits.most));
  const Outcome outcome = launcher_.run();
  print_summary(outcome);
  console_.finish(kLastWords);
  return outcome.code;
}

void TerminalRun::turn() {
  show_progress();
  console_.flush();
}

void TerminalRun::output(Uid uid, bool is_err, std::string_view line) {
  const std::string host = launcher_.host_of(uid);
  const std::string text =
      host.empty() ? fmt::format("[{}] {}", uid, line) : fmt::format("[{} {}] {}", host, uid, line);
  is_err ? console_.err(text) : console_.out(text);
}

void TerminalRun::heard(Uid uid, const wire::FromWorker& message) {
  if (const auto* beat = std::get_if<wire::Beat>(&message)) {
    progress_.step = std::max(progress_.step, beat->step);
  } else if (const auto* report = std::get_if<wire::Report>(&message)) {
    if (report->content.is_object()) handle_report(uid, report->content);
  } else if (const auto* notice = std::get_if<wire::Notice>(&message)) {
    log("notice", {{"worker", uid}, {"kind", notice->kind}, {"content", notice->content}});
    show_notice(uid, *notice);
  }
}

// After a leader has died, its successor repeats the reports of which it does not know whether they
// arrived.
void TerminalRun::handle_report(Uid uid, const Json& content) {
  if (const auto report = wire::read_step_report(content)) {
    const int fresh_starts = launcher_.state().counts().fresh_starts;
    if (progress_.fresh_starts == fresh_starts && report->step <= progress_.reported) return;
    progress_.fresh_starts = fresh_starts;
    progress_.reported = report->step;
    progress_.step = report->step;
  }
  progress_.report = content;
  progress_.shown = false;
  log("report", {{"worker", uid}, {"content", content}});
}

// --- requests ------------------------------------------------------------------------------------

void TerminalRun::asked(int connection, const Json& message) {
  launcher_.send(connection, answer(message));
}

Json TerminalRun::answer(const Json& request) {
  launcher_.collect_all();
  const std::string type = look_for_text(request, "type");
  const auto result = type == "info"     ? Result<Json>(info())
                      : type == "resize" ? resize(request)
                      : type == "kill"   ? kill_one(request)
                                         : Result<Json>(Error{"unknown request; the launcher and "
                                                              "this command must be of one version"});
  return result ? *result : Json{{"error", result.error().message}};
}

Result<Json> TerminalRun::resize(const Json& request) {
  const std::string text = look_for_text(request, "to");
  const bool relative = text.starts_with('+') || text.starts_with('-');
  const auto number = parse_integer(text.starts_with('+') ? text.substr(1) : text);
  constexpr long long kMost = 1'000'000;
  if (!number || *number > kMost || *number < -kMost) {
    return Error{
        fmt::format("{} is not a number of workers; write 4, +1 or -1", base::quoted(text))};
  }
  const int before = launcher_.state().wanted();
  const int workers = static_cast<int>(*number) + (relative ? before : 0);
  if (auto done = launcher_.state().resize(launcher_.now(), workers); !done) return done.error();
  log("resize", {{"from", before}, {"to", workers}});
  if (workers != before) say(fmt::format("from {} to {}", before, count_of(workers, "worker")));
  return Json{{"name", options_.spec.name}, {"from", before}, {"to", workers}};
}

Result<Json> TerminalRun::kill_one(const Json& request) {
  const auto killed = launcher_.state().kill(look_for_integer(request, "worker"));
  if (!killed) return killed.error();
  log("kill", {{"worker", *killed}});
  return Json{{"name", options_.spec.name}, {"worker", *killed}};
}

Json TerminalRun::info() const {
  const LaunchCounts& counts = launcher_.state().counts();
  Json content = {{"name", options_.spec.name},
                  {"pid", getpid()},
                  {"mode", options_.spec.live ? "live" : "restart"},
                  {"command", options_.spec.command},
                  {"workers", launcher_.state().living()},
                  {"wanted", launcher_.state().wanted()},
                  {"least", options_.spec.limits.least},
                  {"most", options_.spec.limits.most},
                  {"failures", counts.failures},
                  {"resizes", counts.resizes},
                  {"seconds", seconds(launcher_.now())}};
  if (options_.spec.live) {
    content["step"] = progress_.step;
    content["report"] = progress_.report;
  }
  return content;
}

// --- for people ----------------------------------------------------------------------------------

void TerminalRun::say(const std::string& text) {
  if (!options_.quiet) console_.err("rubato: " + text);
}

namespace {

// "members 1 3, 4 joining, from step 84".
std::string members_line(const wire::MembersNotice& notice) {
  if (notice.members.empty() || !notice.first) return "members have changed";  // another version
  std::string line;
  for (const auto& [uid, role] : notice.members) {
    line += fmt::format("{}{}{}", line.empty() ? "members " : ", ", uid,
                        role == "working" ? "" : " " + role);
  }
  return line + fmt::format("; from step {}", *notice.first);
}

}  // namespace

void TerminalRun::show_notice(Uid uid, const wire::Notice& notice) {
  const Json& content = notice.content;
  if (notice.kind == wire::notice::kState) return;  // only for the log
  if (notice.kind == wire::notice::kMembers) return say(members_line(wire::read_members(content)));
  const Json* text = look_for(content, "text");
  if (text != nullptr && text->is_string()) {
    say(fmt::format("worker {}: {}: {}", uid, notice.kind, look_for_text(content, "text")));
  } else if (content.is_object() && !content.empty()) {
    std::string fields;
    for (const auto& [name, value] : content.items()) {
      fields += fmt::format("{}{} {}", fields.empty() ? "" : ", ", name, line_of(value));
    }
    say(fmt::format("worker {}: {}: {}", uid, notice.kind, fields));
  } else {
    say(fmt::format("worker {}: {}", uid, notice.kind));
  }
}

std::string TerminalRun::progress_text() const {
  std::string text = fmt::format("step {}", progress_.step);
  const auto report = wire::read_step_report(progress_.report);
  if (!report) return text;
  if (report->epoch) text += fmt::format(", epoch {:g}", *report->epoch);
  if (report->loss) text += fmt::format(", loss {:.4g}", *report->loss);
  if (report->workers) text += fmt::format(", {}", count_of(*report->workers, "worker"));
  return text;
}

void TerminalRun::show_progress() {
  if (progress_.shown || options_.quiet || launcher_.now() < progress_due_) return;
  progress_.shown = true;
  progress_due_ = launcher_.now() + (console_.terminal() ? kStatusEvery : kLineEvery);
  console_.terminal() ? console_.status(progress_text()) : say(progress_text());
}

void TerminalRun::log(const std::string& event, const Json& fields) {
  if (log_ == nullptr) return;
  Json line = {{"time", wall_clock()}, {"event", event}};
  line.update(fields);
  // Flushes whole lines, so that a reader can follow the file.
  fmt::print(log_, "{}\n", line_of(line));
  std::fflush(log_);
}

void TerminalRun::print_summary(const Outcome& outcome) {
  const LaunchCounts& counts = launcher_.state().counts();
  Json summary = {{"name", options_.spec.name},
                  {"finished", outcome.code == 0},
                  {"code", outcome.code},
                  {"why", outcome.why},
                  {"seconds", seconds(launcher_.now())},
                  {"failures", counts.failures},
                  {"resizes", counts.resizes},
                  {"starts", counts.starts},
                  {"fresh_starts", counts.fresh_starts}};
  if (options_.spec.live) {
    summary["step"] = progress_.step;
    summary["report"] = progress_.report;
  }
  log("end", summary);
  console_.status("");
  const std::string how = outcome.code == 0 ? "finished" : fmt::format("ended: {}", outcome.why);
  const std::string step = options_.spec.live ? fmt::format(" at step {}", progress_.step) : "";
  if (outcome.code != 0 || !options_.quiet) {
    console_.err(fmt::format("rubato: {} {}; {:.1f} s{}, {}, {}", options_.spec.name, how,
                             seconds(launcher_.now()), step, count_of(counts.resizes, "resize"),
                             count_of(counts.failures, "failure")));
  }
  if (options_.json) {
    fmt::print("{}\n", line_of(summary));
    std::fflush(stdout);
  }
}

}  // namespace rubato::launch
