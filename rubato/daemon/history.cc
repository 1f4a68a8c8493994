#include "rubato/daemon/history.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/daemon/records.h"

namespace rubato::daemon {
namespace {

std::string batch_text(const std::optional<Batch>& batch) {
  if (!batch) return "";
  return batch->accumulation == 0
             ? fmt::format(", {} samples on each", batch->per_gpu)
             : fmt::format(", {} x {} samples on each", batch->accumulation + 1, batch->per_gpu);
}

class Lines {
 public:
  Lines(RowNumber number, Time time, Duration offset)
      : number_(number), time_(time), at_(time.time_since_epoch() + offset) {}

  void add(std::string type, std::optional<JobId> job, std::string text) {
    lines_.push_back({number_, at_, std::move(type), job, std::move(text)});
  }

  void job(const Json& body) {
    const JobId id(body.at("id").get<JobId::rep>());
    if (body.contains("measures_for")) {
      return add("profiling", JobId(body.at("measures_for").get<JobId::rep>()),
                 fmt::format("its speed is measured by job {}", id.value()));
    }
    add("submitted", id,
        fmt::format("{} submitted by {}", body.at("name").get<std::string>(),
                    body.at("user").get<std::string>()));
  }
  void commands(const Json& body) {
    for (const Json& one : body.at("commands")) {
      Command command;
      if (auto ok = read_record(one, command); !ok) continue;
      if (const auto* start = std::get_if<Start>(&command)) {
        add("started", start->job,
            fmt::format("started on {} ({}){}", plural(start->gpus.gpus(), "GPU"),
                        short_slots(start->gpus), batch_text(start->batch)));
      } else if (const auto* resize = std::get_if<Resize>(&command)) {
        add("resized", resize->job,
            fmt::format("told to go to {} ({}){}", plural(resize->gpus.gpus(), "GPU"),
                        short_slots(resize->gpus), batch_text(resize->batch)));
      } else {
        add("stopped", std::get<Stop>(command).job, "told to stop and to release its GPUs");
      }
    }
  }
  void decided(const Json& body) {
    const Json& decision = body.at("decision");
    if (!decision.contains("reject")) return;
    for (const Json& one : decision.at("reject")) {
      add("refused", JobId(one.at("job").get<JobId::rep>()),
          fmt::format("refused: {}", one.at("reason").get<std::string>()));
    }
  }
  void ended(const Json& body) {
    JobEnding ending;
    if (auto ok = read_record(body.at("ending"), ending); !ok) return;
    const std::string how(to_text(ending.how));
    add(how, JobId(body.at("job").get<JobId::rep>()),
        ending.why.empty() ? how : fmt::format("{}: {}", how, ending.why));
  }
  void node(const Json& body) {
    const auto state = [&](const char* name) { return body.at(name).get<std::string>(); };
    const std::string node = body.value("name", std::to_string(body.at("node").get<int>()));
    if (body.contains("wish"))
      add("node", std::nullopt,
          fmt::format("node {}: the operator wants it {}", node, state("wish")));
    if (!body.contains("reported")) return;
    const std::string why = body.value("why", "");
    add("node", std::nullopt,
        fmt::format("node {} is {}{}{}", node, state("reported"), why.empty() ? "" : ": ", why));
  }
  void node_added(const Json& body) {
    add("node", std::nullopt,
        fmt::format("node {} has joined: {} of type {}", body.at("name").get<std::string>(),
                    plural(body.at("gpus").get<int>(), "GPU"), body.at("type").get<std::string>()));
  }
  void reserved(const Json& body) {
    const int gpus = std::popcount(body.at("gpus").get<std::uint64_t>());
    const std::string why = body.value("why", "");
    add("node", std::nullopt,
        fmt::format("node {}: {} reserved{}{}", body.at("node").get<int>(),
                    gpus == 0 ? "no GPU" : plural(gpus, "GPU"), why.empty() ? "" : ": ", why));
  }

  void failed(const Json& body) {
    const std::string why = body.value("why", "");
    const bool ours = body.value("infrastructure", false);
    const char* what = ours ? "its run failed because of the infrastructure" : "its run failed";
    add("failure", JobId(body.at("job").get<JobId::rep>()),
        fmt::format("{}{}{}", what, why.empty() ? "" : ": ", why));
  }
  void held(const Json& body) {
    const JobId job(body.at("job").get<JobId::rep>());
    if (body.contains("until")) {
      const Time until{Duration(body.at("until").get<std::int64_t>())};
      return add("paused", job,
                 fmt::format("starts again after a pause of {:g} s", seconds(until - time_)));
    }
    const bool on = body.at("on").get<bool>();
    add(on ? "held" : "released", job, on ? "put on hold" : "may start again");
  }

  void clock(const Json& body) {
    if (!body.contains("moved")) return add("clock", std::nullopt, "the clock was set");
    const double seconds = static_cast<double>(body.at("moved").get<std::int64_t>()) / 1e6;
    const std::string planned = plural(body.at("deadlines").get<int>(), "deadline");
    if (body.value("down", false)) {
      return add("clock", std::nullopt,
                 fmt::format("the daemon was down for {:.1f} s; {} re-planned", seconds, planned));
    }
    add("clock", std::nullopt,
        fmt::format("the wall clock moved by {:.1f} s against ours; {} re-planned", seconds,
                    planned));
  }

  std::vector<HistoryLine> take() { return std::move(lines_); }

 private:
  RowNumber number_;
  Time time_;
  WallTime at_;
  std::vector<HistoryLine> lines_;
};

JobId job_of(const Json& body) { return JobId(body.at("job").get<JobId::rep>()); }

using Tell = void (*)(Lines&, const Json&);
const std::map<std::string, Tell, std::less<>>& tellers() {
  static const std::map<std::string, Tell, std::less<>> all = {
      {"job", [](Lines& lines, const Json& body) { lines.job(body); }},
      {"commands", [](Lines& lines, const Json& body) { lines.commands(body); }},
      {"decided", [](Lines& lines, const Json& body) { lines.decided(body); }},
      {"ended", [](Lines& lines, const Json& body) { lines.ended(body); }},
      {"node", [](Lines& lines, const Json& body) { lines.node(body); }},
      {"node-added", [](Lines& lines, const Json& body) { lines.node_added(body); }},
      {"reserved", [](Lines& lines, const Json& body) { lines.reserved(body); }},
      {"finished",
       [](Lines& lines, const Json& body) { lines.add("completed", job_of(body), "finished"); }},
      {"failed", [](Lines& lines, const Json& body) { lines.failed(body); }},
      {"held", [](Lines& lines, const Json& body) { lines.held(body); }},
      {"limited",
       [](Lines& lines, const Json& body) {
         const Json& limits = body.at("limits");
         lines.add("limited", job_of(body),
                   fmt::format("may have {} from now on", gpu_range(limits.at("min").get<int>(),
                                                                    limits.at("max").get<int>())));
       }},
      {"verdict",
       [](Lines& lines, const Json& body) {
         lines.add("measured", job_of(body),
                   body.contains("why") ? body.at("why").get<std::string>()
                                        : "its speed was measured; the policy decides on it now");
       }},
      {"plain",
       [](Lines& lines, const Json& body) {
         lines.add("plain", job_of(body),
                   body.contains("limits")
                       ? fmt::format("{}; {}", kRunsAsOneProcess, kToUseMoreGpus)
                       : std::string("the program has connected to its launcher after all: it may "
                                     "have as many GPUs as before"));
       }},
      {"quota",
       [](Lines& lines, const Json& body) {
         const Json& quota = body.at("quota");
         if (quota.contains("until") && !quota.at("until").is_null())
           lines.add("quota", job_of(body),
                     fmt::format("can have {} now: {}", plural(quota.at("gpus").get<int>(), "GPU"),
                                 quota.at("why").get<std::string>()));
       }},
      {"trial",
       [](Lines& lines, const Json& body) {
         if (!body.contains("stage")) return;  // other lines say that it was held or cancelled
         const std::string metric = body.contains("metric")
                                        ? fmt::format("{} {:.6g}", body.at("by").get<std::string>(),
                                                      body.at("metric").get<double>())
                                        : fmt::format("no {}", body.at("by").get<std::string>());
         lines.add("stage", job_of(body),
                   fmt::format("finished stage {} of its search with {}",
                               body.at("stage").get<int>(), metric));
       }},
      {"policy",
       [](Lines& lines, const Json& body) {
         lines.add("policy", std::nullopt,
                   fmt::format("the policy is {}", body.at("policy").get<std::string>()));
       }},
      {"undecided",
       [](Lines& lines, const Json& body) {
         lines.add("undecided", std::nullopt,
                   fmt::format("the policy had no answer: {}", body.at("why").get<std::string>()));
       }},
      {"clock",
       [](Lines& lines, const Json& body) {
         if (body.value("moved", std::int64_t{1}) == 0) return;  // it has only the time
         lines.clock(body);
       }},
      {"skipped",
       [](Lines& lines, const Json& /*body*/) {
         lines.add("repaired", std::nullopt,
                   "rows of the journal were lost: every job got its last command again, and "
                   "numbers that may have been used are skipped");
       }},
      {"user",
       [](Lines& lines, const Json& body) {
         lines.add("user", std::nullopt,
                   fmt::format("user {}", body.at("name").get<std::string>()));
       }},
      {"cells",
       [](Lines& lines, const Json& body) {
         const auto cells = body.at("cells").get<std::string>();
         lines.add("cells", std::nullopt,
                   fmt::format("tenant {} has {}", body.at("tenant").get<std::string>(),
                               cells.empty() ? "no cells any more" : "the cells " + cells));
       }},
      {"user_removed",
       [](Lines& lines, const Json& body) {
         lines.add("user", std::nullopt,
                   fmt::format("user {} removed", body.at("name").get<std::string>()));
       }},
  };
  return all;
}

}  // namespace

std::string gpu_range(int least, int most) {
  return least == most ? plural(most, "GPU") : fmt::format("{} to {} GPUs", least, most);
}

std::string times(int n) { return n == 1 ? "once" : n == 2 ? "twice" : fmt::format("{} times", n); }

std::string short_slots(const Allocation& gpus) {
  std::string text;
  for (const Slice& slice : gpus.slices()) {
    for (unsigned gpu = 0; gpu < 64; ++gpu) {
      if ((slice.mask >> gpu & 1U) == 0) continue;
      unsigned last = gpu;
      while (last + 1 < 64 && (slice.mask >> (last + 1) & 1U) != 0) ++last;
      text += fmt::format("{}{}.{}", text.empty() ? "" : " ", slice.node.value(), gpu);
      if (last > gpu) text += fmt::format("-{}", last);
      gpu = last;
    }
  }
  return text;
}

std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row, Duration offset) {
  const auto teller = tellers().find(row.type);
  if (teller == tellers().end()) return {};
  // Decisions are long, and few of them refuse a job.
  if (row.type == "decided" && row.body.find("\"reason\"") == std::string::npos) return {};
  const auto body = parse_json(row.body, "a row");
  return body ? lines_of(number, row, *body, offset) : std::vector<HistoryLine>();
}

std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row, const Json& body,
                                  Duration offset) {
  const auto teller = tellers().find(row.type);
  if (teller == tellers().end()) return {};
  Lines lines(number, row.time, offset);
  try {
    teller->second(lines, body);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return lines.take();
}

}  // namespace rubato::daemon
