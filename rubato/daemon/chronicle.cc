#include "rubato/daemon/chronicle.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/daemon/numbers_text.h"

namespace rubato::daemon {
namespace {

constexpr std::array<std::string_view, 8> kKinds{"start", "stop",   "restart", "recovery",
                                                 "grow",  "shrink", "move",    "refuse"};

// Reasons come from machines and programs, too.
constexpr std::size_t kLongestReason = 200;

std::string shortened(std::string text) {
  if (text.size() <= kLongestReason) return text;
  std::size_t end = kLongestReason;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

constexpr std::int64_t kMostUsers = 10'000'000;
constexpr std::int64_t kMostGpusOfAJob = 100'000'000;

void write(NumbersWriter& out, const Span& span) {
  out.put(span.job.value());
  out.put(span.user);
  out.put(span.gpus.node.value());
  out.put(static_cast<std::int64_t>(span.gpus.mask));  // the same bits, with a sign
  out.put(span.from);
  out.put(span.until ? span.until->time_since_epoch().count() : -1);
}

Span read_span(NumbersReader& in) {
  Span span;
  span.job = in.job();
  span.user = in.number_in<std::uint32_t>(kMostUsers);
  span.gpus.node = NodeId(in.number_in<NodeId::rep>(UINT32_MAX));
  span.gpus.mask = static_cast<std::uint64_t>(in.number());
  span.from = in.time();
  if (const std::int64_t until = in.number(); until >= 0) span.until = WallTime(Duration(until));
  return span;
}

void write(NumbersWriter& out, const Mark& mark) {
  out.put(mark.job.value());
  out.put(mark.user);
  out.put(mark.at);
  out.put(static_cast<std::int64_t>(mark.kind));
  out.put(mark.gpus);
  out.put(mark.reason);
  out.put(mark.pause ? mark.pause->count() : -1);
}

Mark read_mark(NumbersReader& in) {
  Mark mark;
  mark.job = in.job();
  mark.user = in.number_in<std::uint32_t>(kMostUsers);
  mark.at = in.time();
  mark.kind = in.number_in<MarkKind>(std::ssize(kKinds) - 1);
  mark.gpus = in.number_in<int>(kMostGpusOfAJob);
  mark.reason = in.text();
  if (const std::int64_t pause = in.number(); pause >= 0) mark.pause = Duration(pause);
  return mark;
}

void write(NumbersWriter& out, const DecisionNote& note) {
  out.put(static_cast<std::int64_t>(note.number.value()));
  out.put(note.at);
  out.put(note.policy);
  out.put(std::ssize(note.changes));
  for (const DecidedChange& change : note.changes) {
    out.put(change.job.value());
    out.put(change.user);
    out.put(static_cast<std::int64_t>(change.kind));
    out.put(change.from);
    out.put(change.to);
    out.put(change.reason);
  }
}

DecisionNote read_decision(NumbersReader& in) {
  DecisionNote note;
  note.number = RowNumber(static_cast<std::uint64_t>(in.number()));
  note.at = in.time();
  note.policy = in.text();
  for (std::int64_t left = in.number(); left > 0 && !in.done(); --left) {
    DecidedChange& change = note.changes.emplace_back();
    change.job = in.job();
    change.user = in.number_in<std::uint32_t>(kMostUsers);
    change.kind = in.number_in<MarkKind>(std::ssize(kKinds) - 1);
    change.from = in.number_in<int>(kMostGpusOfAJob);
    change.to = in.number_in<int>(kMostGpusOfAJob);
    change.reason = in.text();
  }
  return note;
}

}  // namespace

std::string_view to_text(MarkKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

std::uint32_t Chronicle::number_of(const std::string& user) {
  const auto [at, fresh] = user_numbers_.emplace(user, static_cast<std::uint32_t>(users_.size()));
  if (fresh) users_.push_back(user);
  return at->second;
}

void Chronicle::keep(Span span) {
  if (!span.until || *span.until <= span.from) return;  // it had them for no time at all
  spans_.push_back(span);
  if (spans_.size() <= limits_.spans) return;
  forget(*spans_.front().until);
  spans_.pop_front();
}

void Chronicle::hold(JobId job, const std::string& owner, const Allocation& gpus, WallTime at) {
  const auto found = open_.find(job);
  if (found == open_.end() && gpus.empty()) return;
  std::vector<Span> before = found == open_.end() ? std::vector<Span>() : std::move(found->second);
  std::vector<Span> now;
  for (const Slice& slice : gpus.slices()) {
    const auto same = std::find_if(before.begin(), before.end(),
                                   [&](const Span& span) { return span.gpus == slice; });
    if (same != before.end()) {
      now.push_back(*same);
      before.erase(same);
    } else {
      now.push_back({job, number_of(owner), slice, at, std::nullopt});
    }
  }
  for (Span& span : before) {
    span.until = at;
    keep(span);
  }
  if (now.empty()) {
    open_.erase(job);
  } else {
    open_[job] = std::move(now);
  }
}

void Chronicle::mark(JobId job, const std::string& owner, WallTime at, MarkKind kind, int gpus,
                     std::string reason) {
  if (reason.empty()) reason = cause(job);
  forget_cause(job);
  keep({job, number_of(owner), at, kind, gpus, shortened(std::move(reason)), std::nullopt});
}

void Chronicle::keep(Mark mark) {
  const JobId job = mark.job;
  const bool over = mark.kind == MarkKind::stop && mark.gpus == 0;
  marks_.push_back(std::move(mark));
  const std::uint64_t number = first_mark_ + marks_.size() - 1;
  if (over) {
    newest_mark_.erase(job);
  } else {
    newest_mark_[job] = number;
  }
  if (marks_.size() <= limits_.marks) return;
  const Mark& oldest = marks_.front();
  forget(oldest.at);
  if (const auto at = newest_mark_.find(oldest.job);
      at != newest_mark_.end() && at->second == first_mark_)
    newest_mark_.erase(at);
  marks_.pop_front();
  ++first_mark_;
}

std::string Chronicle::cause(JobId job) const {
  const auto found = causes_.find(job);
  return found == causes_.end() ? "" : found->second;
}

int Chronicle::held(JobId job) const {
  const auto found = open_.find(job);
  int gpus = 0;
  if (found == open_.end()) return gpus;
  for (const Span& span : found->second) gpus += span.gpus.gpus();
  return gpus;
}

const Mark* Chronicle::newest_mark(JobId job) const {
  const auto at = newest_mark_.find(job);
  return at == newest_mark_.end() ? nullptr : &marks_[at->second - first_mark_];
}

void Chronicle::paused(JobId job, Duration pause) {
  const auto at = newest_mark_.find(job);
  if (at == newest_mark_.end()) return;
  Mark& mark = marks_[at->second - first_mark_];
  if (!mark.pause) mark.pause = pause;
}

void Chronicle::decided(DecisionNote note) {
  if (note.changes.empty()) return;
  for (DecidedChange& change : note.changes) change.reason = shortened(std::move(change.reason));
  changes_ += note.changes.size();
  decisions_.push_back(std::move(note));
  while (changes_ > limits_.changes && decisions_.size() > 1) {
    changes_ -= decisions_.front().changes.size();
    decisions_.pop_front();
  }
}

Json Chronicle::save() const {
  const auto put = [](NumbersWriter& out, const auto& record) { write(out, record); };
  std::vector<Span> open;
  for (const auto& [job, spans] : open_) open.insert(open.end(), spans.begin(), spans.end());
  Json causes = Json::array();
  for (const auto& [job, why] : causes_) causes.push_back({job.value(), why});
  return {{"causes", std::move(causes)},
          {"decisions", numbers_text(decisions_, put)},
          {"forgot", forgot_},
          {"marks", numbers_text(marks_, put)},
          {"open", numbers_text(open, put)},
          {"since", since_.time_since_epoch().count()},
          {"spans", numbers_text(spans_, put)},
          {"users", users_}};
}

Result<void> Chronicle::load(const Json& saved) {
  Chronicle fresh(limits_);
  bool broken = false;
  std::uint32_t users = 0;
  const auto each = [&](const char* name, const auto& take) {
    NumbersReader in(saved.at(name));
    while (!in.done() && !in.broken()) take(in);
    broken = broken || in.broken();
  };
  const auto known = [&](const auto& record) {
    broken = broken || record.user >= users;
    return !broken;
  };
  try {
    fresh.begin(WallTime(Duration(saved.at("since").get<std::int64_t>())),
                saved.at("forgot").get<bool>());
    for (const Json& user : saved.at("users"))
      static_cast<void>(fresh.number_of(user.get<std::string>()));
    users = static_cast<std::uint32_t>(fresh.users_.size());
    each("spans", [&](NumbersReader& in) {
      if (Span span = read_span(in); known(span)) fresh.keep(span);
    });
    each("open", [&](NumbersReader& in) {
      if (Span span = read_span(in); known(span)) fresh.open_[span.job].push_back(span);
    });
    each("marks", [&](NumbersReader& in) {
      if (Mark mark = read_mark(in); known(mark)) fresh.keep(std::move(mark));
    });
    for (const Json& one : saved.at("causes"))
      fresh.because(JobId(one.at(0).get<JobId::rep>()), one.at(1).get<std::string>());
    each("decisions", [&](NumbersReader& in) {
      DecisionNote note = read_decision(in);
      for (const DecidedChange& change : note.changes) {
        if (!known(change)) return;
      }
      fresh.decided(std::move(note));
    });
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("the chronicle: {}", problem.what())};
  }
  if (broken) return Error{"the chronicle has a number that cannot be"};
  *this = std::move(fresh);
  return {};
}

}  // namespace rubato::daemon
