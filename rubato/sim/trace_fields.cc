#include "rubato/sim/trace_fields.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <limits>

#include "rubato/base/text.h"
#include "rubato/base/time.h"

namespace rubato::sim {
namespace {

constexpr int kLargestBatch = 1'000'000'000;
constexpr double kMostSteps = 1e15;
constexpr double kLargestWeight = 1e9;
constexpr std::size_t kLongestLabel = 256;

// The length of the UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Rejects overlong forms, surrogates and code points that do not exist.
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

// Labels are shown in tables, JSON and HTML, so they must be printable text.
TraceProblem set_label(std::string_view column, std::string_view text, std::string& out) {
  if (text.size() > kLongestLabel) {
    return fmt::format("{} is longer than {} bytes", column, kLongestLabel);
  }
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) return fmt::format("{} {} is not UTF-8 text", column, base::quoted(text));
    if (byte < 0x20 || byte == 0x7F) {
      return fmt::format("{} {} has a control character", column, base::quoted(text));
    }
    i += length;
  }
  out = text;
  return std::nullopt;
}

TraceProblem set_number(std::string_view column, std::string_view text, double most, double& out) {
  const auto value = parse_double(text);
  if (!value) return fmt::format("{} {} is not a number", column, base::quoted(text));
  if (!std::isfinite(*value))
    return fmt::format("{} {} is not a finite number", column, base::quoted(text));
  if (*value < 0) return fmt::format("{} {} is negative", column, base::quoted(text));
  if (*value > most) return fmt::format("{} {} is above {}", column, base::quoted(text), most);
  out = *value;
  return std::nullopt;
}

TraceProblem set_number(std::string_view column, std::string_view text, double most,
                        std::optional<double>& out) {
  return set_number(column, text, most, out.emplace());
}

// "4", and "4.0" as spreadsheets write it.
TraceProblem set_whole(std::string_view column, std::string_view text, int least, int most,
                       int& out) {
  const auto value = parse_double(text);
  if (!value || !(*value == std::floor(*value)) || *value < least || *value > most) {
    return fmt::format("{} {} is not a whole number from {} to {}", column, base::quoted(text),
                       least, most);
  }
  out = static_cast<int>(*value);
  return std::nullopt;
}

TraceProblem set_gpus(std::string_view column, std::string_view text, int& out) {
  return set_whole(column, text, 1, kMostGpus, out);
}

TraceProblem set_allowed(std::string_view column, std::string_view text, std::vector<int>& out) {
  for (const auto item : split(text, '/')) {
    if (auto bad = set_gpus(column, trim(item), out.emplace_back())) return bad;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return std::nullopt;
}

TraceProblem set_weight(std::string_view column, std::string_view text, double& out) {
  if (auto bad = set_number(column, text, kLargestWeight, out)) return bad;
  if (out > 0) return std::nullopt;
  return fmt::format("{} {} must be above 0", column, base::quoted(text));
}

constexpr std::string_view kSearchForm =
    "must be NAME:trials=N:share=S, as lr:trials=8:share=0.1; keep-one-in=N and wait=false may "
    "follow";

TraceProblem set_search(std::string_view column, std::string_view text, TraceSearch& out) {
  auto search = parse_trace_search(text);
  if (!search) return fmt::format("{} {}", column, search.error().message);
  out = std::move(*search);
  return std::nullopt;
}

TraceProblem set_utility(std::string_view column, std::string_view text, Utility& out) {
  const auto parts = split(text, '/');
  if (parts.size() != 3)
    return fmt::format("{} {} is not VALUE/DECAY/TARGET, as 10/0.001/3600", column,
                       base::quoted(text));
  double target_s = 0;
  if (auto bad = set_weight(column, trim(parts[0]), out.value)) return bad;
  if (auto bad = set_number(column, trim(parts[1]), kLargestWeight, out.decay)) return bad;
  if (auto bad = set_number(column, trim(parts[2]), kLongestSeconds, target_s)) return bad;
  out.target = from_seconds(target_s);
  return std::nullopt;
}

TraceProblem set_share(std::string_view column, std::string_view text, std::optional<double>& out) {
  const auto share = parse_double(text);
  if (!share || !(*share > 0) || *share > 1)
    return fmt::format("{} {} is not a share above 0 and at most 1", column, base::quoted(text));
  out = share;
  return std::nullopt;
}

TraceProblem set_timestamp(std::string_view column, std::string_view text, double& out) {
  const auto time = parse_timestamp(text);
  if (!time)
    return fmt::format("{} {} is not a time YYYY-MM-DD HH:MM:SS", column, base::quoted(text));
  out = *time;
  return std::nullopt;
}

// The start or the end of a job that may not have one.
TraceProblem set_moment(std::string_view column, std::string_view text,
                        std::optional<double>& out) {
  if (text == "Unknown" || text == "None" || text == "NaT") return std::nullopt;
  return set_timestamp(column, text, out.emplace());
}

// Only compared with the times, so any number will do.
TraceProblem set_stated(std::string_view column, std::string_view text,
                        std::optional<double>& out) {
  out = parse_double(text);
  if (out) return std::nullopt;
  return fmt::format("{} {} is not a number", column, base::quoted(text));
}

TraceProblem set_elapsed(std::string_view column, std::string_view text,
                         std::optional<double>& out) {
  out = parse_elapsed(text);
  if (out && *out <= kLongestSeconds) return std::nullopt;
  return fmt::format("{} {} is not a time [DAYS-]HH:MM:SS or a number of seconds", column,
                     base::quoted(text));
}

TraceProblem set_tres(std::string_view column, std::string_view text, std::optional<int>& out) {
  const auto gpus = gpus_of_tres(text);
  if (!gpus) return fmt::format("{} {} {}", column, base::quoted(text), gpus.error().message);
  return set_whole(column, fmt::to_string(*gpus), 0, kMostGpus, out.emplace());
}

// "12.batch" is a step of the job 12, and "12+0" a part of it.
TraceProblem set_slurm_id(std::string_view column, std::string_view text, TraceDraft& draft) {
  draft.record.step = text.find('.') != std::string_view::npos;
  const auto plus = text.find('+');
  draft.record.part = plus != std::string_view::npos;
  if (plus == 0) return fmt::format("{} {} names no job", column, base::quoted(text));
  return set_label(column, text.substr(0, plus), draft.job.name);
}

// The uid in "CANCELLED by 1000" says nothing about the job.
TraceProblem set_state(std::string_view column, std::string_view text, std::string& out) {
  return set_label(column, text.substr(0, text.find(' ')), out);
}

// "ResNet-18 (batch size 128)", or a bare "A3C".
TraceProblem set_job_type(std::string_view column, std::string_view text, TraceJob& job) {
  constexpr std::string_view kBatch = "(batch size ";
  const auto open = text.find(kBatch);
  if (open != std::string_view::npos) {
    auto batch = text.substr(open + kBatch.size());
    if (batch.empty() || batch.back() != ')') {
      return fmt::format("{} {} has no end of its batch size", column, base::quoted(text));
    }
    batch.remove_suffix(1);
    if (auto bad = set_whole("batch size", batch, 1, kLargestBatch, job.batch)) return bad;
  }
  const auto model = trim(text.substr(0, open));
  if (model.empty()) return fmt::format("{} {} names no model", column, base::quoted(text));
  return set_label(column, model, job.model);
}

TraceProblem set_slo(std::string_view column, std::string_view text, TraceDraft& draft) {
  const auto value = parse_double(text);
  if (value && *value <= 0 && std::isfinite(*value)) return std::nullopt;  // -1 means none
  return set_number(column, text, kLongestSeconds, draft.slo);
}

TraceProblem set_class(std::string_view column, std::string_view text, bool& opportunistic) {
  if (text != "guaranteed" && text != "opportunistic")
    return fmt::format("{} {} is not guaranteed or opportunistic", column, base::quoted(text));
  opportunistic = text == "opportunistic";
  return std::nullopt;
}

TraceProblem set_mode(std::string_view column, std::string_view text, BatchChanges& out) {
  if (text != "static" && text != "accordion" && text != "gns") {
    return fmt::format("{} {} is not static, accordion or gns", column, base::quoted(text));
  }
  out = text == "accordion" ? BatchChanges::accordion
        : text == "gns"     ? BatchChanges::gns
                            : BatchChanges::none;
  return std::nullopt;
}

}  // namespace

TraceProblem set_trace_field(TraceField field, std::string_view column, std::string_view text,
                             TraceDraft& draft) {
  TraceJob& job = draft.job;
  switch (field) {
    case TraceField::name:
      return set_label(column, text, job.name);
    case TraceField::user:
      return set_label(column, text, job.user);
    case TraceField::model:
      return set_label(column, text, job.model);
    case TraceField::submit:
      return set_number(column, text, kLongestSeconds, job.submit_s);
    case TraceField::timestamp:
      return set_timestamp(column, text, job.submit_s);
    case TraceField::gpus:
      return set_gpus(column, text, job.gpus);
    case TraceField::duration:
      return set_number(column, text, kLongestSeconds, job.duration_s);
    case TraceField::steps:
      return set_number(column, text, kMostSteps, job.steps);
    case TraceField::batch:
      return set_whole(column, text, 0, kLargestBatch, job.batch);
    case TraceField::deadline:
      return set_number(column, text, kLongestSeconds, job.deadline_s);
    case TraceField::weight:
      return set_weight(column, text, job.weight);
    case TraceField::min_gpus:
      return set_gpus(column, text, job.min_gpus.emplace());
    case TraceField::max_gpus:
      return set_gpus(column, text, job.max_gpus.emplace());
    case TraceField::allowed_gpus:
      return set_allowed(column, text, job.allowed_gpus);
    case TraceField::restart:
      return set_number(column, text, kLongestSeconds, job.restart_s);
    case TraceField::utility:
      return set_utility(column, text, job.utility.emplace());
    case TraceField::job_class:
      return set_class(column, text, job.opportunistic);
    case TraceField::search:
      return set_search(column, text, job.search.emplace());
    case TraceField::skew:
      return set_share(column, text, job.skew);
    case TraceField::job_type:
      return set_job_type(column, text, job);
    case TraceField::slo:
      return set_slo(column, text, draft);
    case TraceField::mode:
      return set_mode(column, text, job.batch_changes);
    case TraceField::slurm_id:
      return set_slurm_id(column, text, draft);
    case TraceField::state:
      return set_state(column, text, draft.record.state);
    case TraceField::started:
      return set_moment(column, text, draft.record.start_s);
    case TraceField::ended:
      return set_moment(column, text, draft.record.end_s);
    case TraceField::elapsed:
      return set_elapsed(column, text, draft.record.elapsed_s);
    case TraceField::stated_duration:
      return set_stated(column, text, draft.record.stated_s);
    case TraceField::recorded_gpus:
      return set_whole(column, text, 0, kMostGpus, draft.record.allocated.emplace());
    case TraceField::allocated:
      return set_tres(column, text, draft.record.allocated);
    case TraceField::asked_for:
      return set_tres(column, text, draft.record.asked_for);
    case TraceField::unused:
      break;
  }
  return std::nullopt;
}

TraceProblem finish_trace_job(TraceDraft& draft) {
  TraceJob& job = draft.job;
  if (draft.slo && job.duration_s) {
    job.deadline_s = job.submit_s + *draft.slo * *job.duration_s;
    if (*job.deadline_s > kLongestSeconds) return "the SLO lies too far in the future";
  }
  if (job.deadline_s && *job.deadline_s < job.submit_s) {
    return fmt::format("the deadline {} is before the submission {}", shortest(*job.deadline_s),
                       shortest(job.submit_s));
  }
  const int least = job.min_gpus.value_or(1);
  const int most = job.max_gpus.value_or(std::numeric_limits<int>::max());
  if (least > most) return fmt::format("min_gpus {} is above max_gpus {}", least, most);
  if (job.gpus < least) return fmt::format("gpus {} is below min_gpus {}", job.gpus, least);
  if (job.gpus > most) return fmt::format("gpus {} is above max_gpus {}", job.gpus, most);
  const auto& allowed = job.allowed_gpus;
  if (!allowed.empty() && !std::binary_search(allowed.begin(), allowed.end(), job.gpus)) {
    return fmt::format("gpus {} is not in allowed_gpus", job.gpus);
  }
  return std::nullopt;
}

Result<TraceSearch> parse_trace_search(std::string_view text) {
  const auto parts = split(text, ':');
  TraceSearch search;
  search.name = std::string(trim(parts[0]));
  search.rule.trials = 0;
  const Error wrong{std::string(kSearchForm)};
  if (search.name.empty() || parts.size() > 5) return wrong;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == std::string_view::npos) return wrong;
    const auto key = parts[i].substr(0, equals);
    const auto value = parts[i].substr(equals + 1);
    if (key == "wait") {
      if (value != "true" && value != "false") return wrong;
      search.wait = value == "true";
    } else if (key == "share") {
      const auto share = parse_double(value);
      if (!share || !(*share > 0 && *share <= 1)) return wrong;
      search.share = *share;
    } else if (key == "trials" || key == "keep-one-in") {
      const auto number = parse_integer(value);
      if (!number || *number < 2 || *number > kMostTrials) return wrong;
      (key == "trials" ? search.rule.trials : search.rule.keep_one_in) = static_cast<int>(*number);
    } else {
      return wrong;
    }
  }
  if (search.rule.trials == 0) return wrong;
  return search;
}

std::string to_text(const TraceSearch& search) {
  return fmt::format("{}:trials={}:share={}:keep-one-in={}{}", search.name, search.rule.trials,
                     search.share, search.rule.keep_one_in, search.wait ? "" : ":wait=false");
}

}  // namespace rubato::sim
